//! Words of the checks of mounts, exports, and how full file systems are.

use super::Row;

/// Sentences of these checks, by their keys.
pub const ROWS: &[Row] = &[
    (
        "mounts.sync",
        [
            "{place} ({kind}) is mounted with sync: each write waits until the disk has it, and no two are gathered.",
            "{place}（{kind}）は sync でマウントされています。書き込みのたびにディスクへの到達を待ち、まとめて書かれることがありません。",
            "{place}({kind}): sync로 마운트되어 있습니다. 쓸 때마다 디스크에 닿기를 기다리며, 모아서 쓰지 않습니다.",
        ],
    ),
    (
        "mounts.sync-help",
        [
            "mount -o remount,async {place}, and take sync out of /etc/fstab; programs that need their data on disk ask for it (fsync)",
            "mount -o remount,async {place} を実行し、/etc/fstab から sync を外してください。ディスクへの到達が必要なプログラムは自ら要求します（fsync）",
            "mount -o remount,async {place} 명령을 실행하고 /etc/fstab에서 sync를 빼십시오. 데이터가 디스크에 있어야 하는 프로그램은 스스로 요청합니다(fsync)",
        ],
    ),
    (
        "mounts.sync-help-name",
        [
            "remount {place} with async, and take sync out of /etc/fstab; programs that need their data on disk ask for it (fsync)",
            "{place} を async で再マウントし、/etc/fstab から sync を外してください。ディスクへの到達が必要なプログラムは自ら要求します（fsync）",
            "{place} 경로를 async로 다시 마운트하고 /etc/fstab에서 sync를 빼십시오. 데이터가 디스크에 있어야 하는 프로그램은 스스로 요청합니다(fsync)",
        ],
    ),
    (
        "mounts.more",
        [
            "there are more than are looked at; the rest was not judged",
            "調べる上限を超える数があり、残りは判定していません",
            "살펴보는 한도보다 많아 나머지는 판정하지 않았습니다",
        ],
    ),
    (
        "mounts.dirsync",
        [
            "{place} ({kind}) is mounted with dirsync: each file that is made, renamed or removed waits for the disk.",
            "{place}（{kind}）は dirsync でマウントされています。ファイルの作成、名前変更、削除のたびにディスクを待ちます。",
            "{place}({kind}): dirsync로 마운트되어 있습니다. 파일을 만들거나 이름을 바꾸거나 지울 때마다 디스크를 기다립니다.",
        ],
    ),
    (
        "mounts.dirsync-help",
        [
            "take dirsync out of /etc/fstab and mount {place} anew, unless a mail server or the like relies on it",
            "メールサーバーなどが必要としていなければ、/etc/fstab から dirsync を外し、{place} をマウントし直してください",
            "메일 서버 등이 필요로 하지 않는다면 /etc/fstab에서 dirsync를 빼고 {place} 경로를 다시 마운트하십시오",
        ],
    ),
    (
        "mounts.journal",
        [
            "{place} ({kind}) journals data as well (data=journal): each byte is written twice, first to the journal and then to its place.",
            "{place}（{kind}）はデータもジャーナルに書きます（data=journal）。すべてのバイトがジャーナルと本来の場所に 2 回書かれます。",
            "{place}({kind}): 데이터도 저널에 씁니다(data=journal). 모든 바이트가 저널과 제자리에 두 번 쓰입니다.",
        ],
    ),
    (
        "mounts.journal-help",
        [
            "use data=ordered, ext4's default (unmount {place} first; where it is the file system's own default: tune2fs -o ^journal_data)",
            "ext4 の既定である data=ordered にしてください（先に {place} をアンマウントします。ファイルシステム自体の既定値になっている場合は tune2fs -o ^journal_data）",
            "ext4의 기본값인 data=ordered를 쓰십시오(먼저 {place} 경로를 언마운트하십시오. 파일 시스템 자체의 기본값이라면 tune2fs -o ^journal_data)",
        ],
    ),
    (
        "mounts.fine",
        [
            "Mount options: {count} file systems on this host's disks, none with sync, dirsync or data=journal.",
            "マウントオプション：このホストのディスク上のファイルシステム {count} 個。sync、dirsync、data=journal を使うものはありません。",
            "마운트 옵션: 이 호스트 디스크의 파일 시스템 {count}개. sync, dirsync, data=journal을 쓰는 것은 없습니다.",
        ],
    ),
    (
        "mounts.noac",
        [
            "{place} is mounted with noac: each access asks the server for attributes anew, and each write waits for the server.",
            "{place} は noac でマウントされています。アクセスのたびに属性をサーバーへ問い合わせ、書き込みのたびにサーバーを待ちます。",
            "{place}: noac로 마운트되어 있습니다. 접근할 때마다 서버에 속성을 다시 묻고, 쓸 때마다 서버를 기다립니다.",
        ],
    ),
    (
        "mounts.actimeo",
        [
            "{place} is mounted with actimeo=0: attributes of files are kept for no time, and each access asks the server for them anew.",
            "{place} は actimeo=0 でマウントされています。ファイルの属性が保持されず、アクセスのたびにサーバーへ問い合わせます。",
            "{place}: actimeo=0으로 마운트되어 있습니다. 파일 속성을 보관하지 않아 접근할 때마다 서버에 다시 묻습니다.",
        ],
    ),
    (
        "mounts.noac-help",
        [
            "mount without noac and actimeo=0, unless several hosts work on the same files at once and do not lock them; actimeo=1 is a middle way",
            "複数のホストがロックなしで同じファイルを同時に扱うのでなければ、noac や actimeo=0 なしでマウントしてください。actimeo=1 は折衷案です",
            "여러 호스트가 잠금 없이 같은 파일을 동시에 다루지 않는다면 noac나 actimeo=0 없이 마운트하십시오. actimeo=1은 절충안입니다",
        ],
    ),
    (
        "mounts.nfs-sync",
        [
            "{place} is mounted with sync: each write of a program is a request of its own that waits for the server.",
            "{place} は sync でマウントされています。プログラムの書き込み 1 回ごとに要求が送られ、サーバーを待ちます。",
            "{place}: sync로 마운트되어 있습니다. 프로그램이 쓸 때마다 따로 요청을 보내고 서버를 기다립니다.",
        ],
    ),
    (
        "mounts.nfs-sync-help",
        [
            "mount without sync: what a program flushes or closes is on the server all the same",
            "sync なしでマウントしてください。プログラムがフラッシュまたはクローズしたデータは、それでもサーバーに届いています",
            "sync 없이 마운트하십시오. 프로그램이 플러시하거나 닫은 데이터는 그래도 서버에 있습니다",
        ],
    ),
    (
        "mounts.nfs-small",
        [
            "{place} asks for {kib} KiB at a time over {nic} ({speed}): each request costs as much work as one of 1 MiB, and carries a small part of it.",
            "{place} は {nic}（{speed}）経由で一度に {kib} KiB しか要求しません。要求 1 回の手間は 1 MiB の場合と同程度なのに、運ぶのはその一部だけです。",
            "{place}: {nic}({speed}) 경로로 한 번에 {kib} KiB만 요청합니다. 요청 하나에 드는 일은 1 MiB일 때와 비슷한데 나르는 양은 그 일부입니다.",
        ],
    ),
    (
        "mounts.nfs-small-help",
        [
            "mount without rsize and wsize, so that both ends agree on the most that they can; if it stays small, the server limits it",
            "rsize と wsize を指定せずにマウントし、双方が可能な最大値に合わせるようにしてください。小さいままなら、サーバー側で制限されています",
            "rsize와 wsize 없이 마운트하여 양쪽이 가능한 최댓값에 맞추게 하십시오. 그래도 작으면 서버가 제한하는 것입니다",
        ],
    ),
    (
        "mounts.nfs-fine",
        [
            "NFS mounts: {count}, none with noac, actimeo=0 or sync, and none with requests of less than 64 KiB over a line known to carry 10 Gb/s or more.",
            "NFS マウント：{count} 個。noac、actimeo=0、sync を使うものはなく、10 Gb/s 以上と分かっている回線で 64 KiB 未満の要求を使うものもありません。",
            "NFS 마운트: {count}개. noac, actimeo=0, sync를 쓰는 것이 없고, 10 Gb/s 이상으로 확인된 회선에서 64 KiB 미만으로 요청하는 것도 없습니다.",
        ],
    ),
    (
        "mounts.export-async",
        [
            "{place} is exported with async: the NFS server says that data is on disk before it is. When this host fails, clients lose what they were told is safe, and do not notice.",
            "{place} は async でエクスポートされています。NFS サーバーは、ディスクに書く前に書いたと答えます。このホストが落ちると、クライアントは安全と伝えられたデータを、気付かないまま失います。",
            "{place}: async로 내보내고 있습니다. NFS 서버가 디스크에 쓰기 전에 썼다고 답합니다. 이 호스트에 장애가 나면 클라이언트는 안전하다고 들은 데이터를 모르는 채 잃습니다.",
        ],
    ),
    (
        "mounts.export-async-help",
        [
            "export with sync, the default, and make flushes fast instead: flash with power-loss protection, a log device, or a tier",
            "既定の sync でエクスポートし、代わりにフラッシュを速くしてください（停電保護付きフラッシュ、ログデバイス、またはティア）",
            "기본값인 sync로 내보내고, 대신 플러시를 빠르게 하십시오(정전 보호 플래시, 로그 장치 또는 티어)",
        ],
    ),
    (
        "mounts.export-sync",
        [
            "{place} is exported with sync, which keeps what clients were told is written, and all its disks turn: a client that flushes, or makes many small files, waits some milliseconds for each.",
            "{place} は sync でエクスポートされており、書いたと伝えたデータは守られます。ただしディスクはすべて回転式のため、フラッシュや多数の小さなファイルの作成では、1 回ごとに数ミリ秒待ちます。",
            "{place}: sync로 내보내고 있어 썼다고 알린 데이터는 지켜집니다. 다만 디스크가 모두 회전식이므로, 플러시하거나 작은 파일을 많이 만드는 클라이언트는 매번 몇 밀리초를 기다립니다.",
        ],
    ),
    (
        "mounts.export-sync-help",
        [
            "leave sync as it is; put the file system's journal, or a tier, on flash with power-loss protection (async would be faster, and lose data)",
            "sync はそのままにし、ファイルシステムのジャーナルまたはティアを停電保護付きフラッシュに置いてください（async は速くなりますが、データを失います）",
            "sync는 그대로 두고, 파일 시스템의 저널이나 티어를 정전 보호 플래시에 두십시오(async는 빠르지만 데이터를 잃습니다)",
        ],
    ),
    (
        "mounts.exports-fine",
        [
            "NFS exports: {count} that can be written to, each with sync, and none known to lie on disks that all turn.",
            "NFS エクスポート：書き込み可能な {count} 個はすべて sync で、回転式ディスクだけの上にあると分かっているものはありません。",
            "NFS 내보내기: 쓸 수 있는 {count}개가 모두 sync이고, 회전식 디스크 위에만 있다고 알려진 것은 없습니다.",
        ],
    ),
    (
        "room.full",
        [
            "{place} is {share} full, with {left} left: the fuller a file system is, the shorter are its free stretches, and the more pieces a file is written in.",
            "{place} は {share} 使用済みで、残りは {left} です。満杯に近いファイルシステムほど連続した空きが短くなり、ファイルが細かく分かれて書かれます。",
            "{place}: {share} 찼고 {left} 남았습니다. 파일 시스템이 찰수록 이어진 빈 공간이 짧아져 파일이 더 잘게 나뉘어 쓰입니다.",
        ],
    ),
    (
        "room.help",
        [
            "remove or move what is not needed, or make the file system larger",
            "不要なものを削除または移動するか、ファイルシステムを大きくしてください",
            "필요 없는 것을 지우거나 옮기고, 아니면 파일 시스템을 늘리십시오",
        ],
    ),
    (
        "room.files",
        [
            "{place} has {share} of its files in use, and {left} may still be made: after that nothing new can be made, whatever room there is.",
            "{place} は作成できるファイル数の {share} を使用済みで、残りは {left} 個です。使い切ると、空き容量があっても新しいファイルは作れません。",
            "{place}: 만들 수 있는 파일 수의 {share} 사용 중이며 {left}개 남았습니다. 다 쓰면 공간이 남아도 새 파일을 만들 수 없습니다.",
        ],
    ),
    (
        "room.files-help",
        [
            "remove small files that are not needed; the number is fixed when the file system is made (mkfs.ext4 -N)",
            "不要な小さいファイルを削除してください。この数はファイルシステムの作成時に決まります（mkfs.ext4 -N）",
            "필요 없는 작은 파일을 지우십시오. 이 수는 파일 시스템을 만들 때 정해집니다(mkfs.ext4 -N)",
        ],
    ),
    (
        "room.zfs",
        [
            "a pool of ZFS that is suspended never answers, so it is not asked: zpool list shows how full each is",
            "サスペンドした ZFS プールは応答しないため、問い合わせません。使用率は zpool list で確認できます",
            "일시 중단된 ZFS 풀은 답하지 않으므로 묻지 않습니다. 얼마나 찼는지는 zpool list로 볼 수 있습니다",
        ],
    ),
    (
        "room.fine",
        [
            "Room: {count} file systems of 4 GiB and more on this host's disks, the fullest {share} full.",
            "空き容量：このホストのディスク上にある 4 GiB 以上のファイルシステム {count} 個。最も埋まっているもので {share} です。",
            "여유 공간: 이 호스트 디스크의 4 GiB 이상 파일 시스템 {count}개. 가장 찬 것이 {share}입니다.",
        ],
    ),
];
