//! Words of the checks of ZFS.

use super::Row;

/// Sentences of the checks of ZFS, by their keys.
pub const ROWS: &[Row] = &[
    (
        "zfs.throttled",
        [
            "Writers to ZFS waited for memory {times} times between the two looks; its cache (ARC) has {size} of at most {most}, on a host with {ram} of RAM.",
            "ZFS への書き込みが、2 回の観測の間に {times} 回メモリ不足で待たされました。キャッシュ（ARC）は最大 {most} のうち {size} で、ホストの RAM は {ram} です。",
            "ZFS에 쓰는 쪽이 두 번 보는 사이에 {times}번 메모리를 기다렸습니다. 캐시(ARC): 최대 {most} 중 {size}, 호스트의 RAM: {ram}.",
        ],
    ),
    (
        "zfs.arc-swaps",
        [
            "ZFS's cache (ARC) has {size} of the {ram} of RAM (at most {most}) while {pages} pages/s are read back from swap: it does not make room fast enough.",
            "ZFS のキャッシュ（ARC）が RAM {ram} のうち {size} を占め（最大 {most}）、同時に毎秒 {pages} ページがスワップから読み戻されています。場所を空けるのが間に合っていません。",
            "ZFS의 캐시(ARC)가 RAM {ram} 중 {size} 분량을 차지한 채로(최대 {most}), 스왑에서 초당 {pages}페이지를 다시 읽습니다. 자리를 제때 비우지 못하고 있습니다.",
        ],
    ),
    (
        "zfs.arc-less-help",
        [
            "set zfs_arc_max lower (/sys/module/zfs/parameters/zfs_arc_max, and options zfs in /etc/modprobe.d), or give the host more RAM",
            "zfs_arc_max を下げるか（/sys/module/zfs/parameters/zfs_arc_max と /etc/modprobe.d の options zfs）、RAM を増やしてください",
            "zfs_arc_max 값을 낮추거나(/sys/module/zfs/parameters/zfs_arc_max 및 /etc/modprobe.d의 options zfs) RAM을 늘리십시오",
        ],
    ),
    (
        "zfs.arc-small",
        [
            "ZFS's cache (ARC) is full at {size} of at most {most}, and {misses} of reads miss it, while {idle} of the {ram} of RAM are available.",
            "ZFS のキャッシュ（ARC）は最大 {most} のうち {size} で満杯となり、読み出しの {misses} が外れています。一方、RAM {ram} のうち {idle} が利用可能です。",
            "ZFS의 캐시(ARC)는 최대 {most} 중 {size} 상태로 가득 찼고 읽기의 {misses}가 빗나갑니다. 한편 RAM {ram} 중 {idle} 분량을 쓸 수 있습니다.",
        ],
    ),
    (
        "zfs.arc-more-help",
        [
            "let the cache have more: raise zfs_arc_max (/sys/module/zfs/parameters/zfs_arc_max, and options zfs in /etc/modprobe.d)",
            "キャッシュを増やしてください：zfs_arc_max を引き上げます（/sys/module/zfs/parameters/zfs_arc_max と /etc/modprobe.d の options zfs）",
            "캐시를 늘리십시오. zfs_arc_max 값을 올립니다(/sys/module/zfs/parameters/zfs_arc_max 및 /etc/modprobe.d의 options zfs)",
        ],
    ),
    (
        "zfs.arc-fine",
        [
            "ZFS's cache (ARC): {size} of at most {most}, on a host with {ram} of RAM; {hits} of reads hit it between the two looks.",
            "ZFS のキャッシュ（ARC）：最大 {most} のうち {size}、ホストの RAM は {ram}。2 回の観測の間のヒット率は {hits} です。",
            "ZFS의 캐시(ARC): 최대 {most} 중 {size}, 호스트의 RAM {ram}. 두 번 보는 사이 적중률은 {hits}입니다.",
        ],
    ),
    (
        "zfs.arc-idle",
        [
            "ZFS's cache (ARC): {size} of at most {most}, on a host with {ram} of RAM; too few reads between the two looks to tell how many hit it.",
            "ZFS のキャッシュ（ARC）：最大 {most} のうち {size}、ホストの RAM は {ram}。2 回の観測の間の読み出しが少なく、ヒット率は分かりません。",
            "ZFS의 캐시(ARC): 최대 {most} 중 {size}, 호스트의 RAM {ram}. 두 번 보는 사이의 읽기가 적어 적중률은 알 수 없습니다.",
        ],
    ),
    (
        "zfs.no-flush",
        [
            "ZFS does not ask disks to flush their caches (zfs_nocacheflush=1): a power cut loses what was acknowledged, unless the cache of each disk survives one.",
            "ZFS がディスクにキャッシュのフラッシュを要求していません（zfs_nocacheflush=1）。すべてのディスクのキャッシュが停電に耐えるのでなければ、停電時に完了済みの書き込みが失われます。",
            "ZFS가 디스크에 캐시 플러시를 요청하지 않습니다(zfs_nocacheflush=1). 모든 디스크의 캐시가 정전을 견디지 않는 한, 정전이 되면 완료된 쓰기를 잃습니다.",
        ],
    ),
    (
        "zfs.no-flush-help",
        [
            "set it to 0, unless all disks of all pools have power-loss protection",
            "すべてのプールの全ディスクに停電保護があるのでなければ、0 にしてください",
            "모든 풀의 모든 디스크에 정전 보호 기능이 있는 것이 아니라면 0으로 설정하십시오",
        ],
    ),
    (
        "zfs.no-prefetch",
        [
            "ZFS reads nothing ahead (zfs_prefetch_disable=1): whoever reads in order waits for the disks at each block.",
            "ZFS は先読みをしません（zfs_prefetch_disable=1）。順次読み出しでは、ブロックごとにディスクを待ちます。",
            "ZFS가 미리 읽지 않습니다(zfs_prefetch_disable=1). 차례로 읽는 쪽은 블록마다 디스크를 기다립니다.",
        ],
    ),
    (
        "zfs.no-prefetch-help",
        [
            "set it to 0, unless all reads are at random",
            "読み出しがすべてランダムでなければ、0 にしてください",
            "읽기가 모두 임의 접근이 아니라면 0으로 설정하십시오",
        ],
    ),
    (
        "zfs.no-log",
        [
            "{commits} times a second somebody waits until ZFS has a write on disk, and all of that ({own}/s) went to the pools' own disks, {device}/s to a log device (SLOG). Disks of this host that turn: {disks}.",
            "毎秒 {commits} 回、ZFS の書き込みがディスクに届くまで待たれており、その全量（{own}/s）がプール自身のディスクに書かれました。ログデバイス（SLOG）へは {device}/s です。このホストの回転式ディスク：{disks}。",
            "초당 {commits}번 ZFS의 쓰기가 디스크에 닿기를 기다리며, 그 전부({own}/s)가 풀 자신의 디스크로 갔고 로그 장치(SLOG)에는 {device}/s가 갔습니다. 이 호스트의 회전식 디스크: {disks}.",
        ],
    ),
    (
        "zfs.no-log-help",
        [
            "add a log device of flash with power-loss protection to the pool (zpool add POOL log DEVICE), if the pool is on disks that turn",
            "プールが回転式ディスク上にあるなら、停電保護付きフラッシュのログデバイスを追加してください（zpool add POOL log DEVICE）",
            "풀이 회전식 디스크 위에 있다면 정전 보호 플래시를 로그 장치로 추가하십시오(zpool add POOL log DEVICE)",
        ],
    ),
    (
        "zfs.log-fine",
        [
            "ZFS's log (ZIL): {commits} waits a second; {own}/s went to the pools' own disks and {device}/s to log devices.",
            "ZFS のログ（ZIL）：待ちは毎秒 {commits} 回。プール自身のディスクへ {own}/s、ログデバイスへ {device}/s です。",
            "ZFS의 로그(ZIL): 기다림 초당 {commits}번, 풀 자신의 디스크로 {own}/s, 로그 장치로 {device}/s.",
        ],
    ),
    (
        "zfs.ask",
        [
            "no file shows them: zpool get ashift and zfs get sync,recordsize do",
            "ファイルには現れません。zpool get ashift と zfs get sync,recordsize で確認できます",
            "파일에는 나타나지 않습니다. zpool get ashift와 zfs get sync,recordsize로 확인할 수 있습니다",
        ],
    ),
];
