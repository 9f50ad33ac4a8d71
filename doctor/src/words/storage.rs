//! Words of the checks of block devices and management.

use super::Row;

/// Sentences of the checks of block devices and management, by their keys.
pub const ROWS: &[Row] = &[
    (
        "disk.scheduler",
        [
            "Requests to {disk} pass through the scheduler {scheduler}, whose one lock all CPUs wait for; an NVMe device orders them itself.",
            "{disk} への要求はスケジューラー {scheduler} を通り、全 CPU がその 1 つのロックを待ちます。NVMe デバイスは自ら順序を決めます。",
            "{disk}에 대한 요청이 스케줄러 {scheduler}을(를) 거치며, 모든 CPU가 그 잠금 하나를 기다립니다. NVMe 장치는 스스로 순서를 정합니다.",
        ],
    ),
    (
        "disk.scheduler-remedy",
        ["take the scheduler out of {disk}", "{disk} のスケジューラーを外します", "{disk}의 스케줄러를 뺍니다"],
    ),
    (
        "disk.completions",
        [
            "Requests of {disk} end on the CPU of the interrupt (rq_affinity 0), and {queues} queues serve {cpus} CPUs in several sockets: a part ends far from who asked.",
            "{disk} の要求は割り込みを受けた CPU で完了し（rq_affinity 0）、キュー {queues} 個を複数ソケットの CPU {cpus} 個が使うため、一部は要求元から遠い CPU で完了します。",
            "{disk}의 요청은 인터럽트를 받은 CPU에서 끝나고(rq_affinity 0), 큐 {queues}개를 여러 소켓의 CPU {cpus}개가 쓰므로 일부는 요청한 쪽에서 먼 CPU에서 끝납니다.",
        ],
    ),
    (
        "disk.completions-remedy",
        [
            "let requests of {disk} end near who asked",
            "{disk} の要求を要求元の近くで完了させます",
            "{disk}의 요청이 요청한 쪽 가까이에서 끝나게 합니다",
        ],
    ),
    (
        "disk.queue-fine",
        [
            "Disk queue: {disk} takes {depth} requests at once by scheduler {scheduler}.",
            "ディスクキュー：{disk} はスケジューラー {scheduler} で同時に {depth} 個の要求を受けます。",
            "디스크 큐: {disk}은(는) 스케줄러 {scheduler}로 요청 {depth}개를 한 번에 받습니다.",
        ],
    ),
    (
        "disk.misaligned",
        [
            "{part} begins at sector {start}, inside a physical sector of {sector} bytes: small writes make the disk read, change and write whole ones.",
            "{part} はセクター {start} から始まり、{sector} バイトの物理セクターの途中です。小さな書き込みのたびにディスクは読み出し・変更・書き戻しをします。",
            "{part}은(는) 섹터 {start}에서 시작하며 {sector}바이트 물리 섹터의 중간입니다. 작은 쓰기마다 디스크가 읽고 고쳐 다시 씁니다.",
        ],
    ),
    (
        "disk.misaligned-remedy",
        [
            "copy the data away and make the partition anew at a multiple of 1 MiB (for ZFS with ashift=12)",
            "データを退避し、1 MiB の倍数から始まるパーティションを作り直してください（ZFS では ashift=12）",
            "데이터를 옮기고 1 MiB의 배수에서 시작하는 파티션을 다시 만드십시오(ZFS는 ashift=12)",
        ],
    ),
    (
        "disk.aligned",
        [
            "Alignment: all {parts} large partitions begin at a physical sector.",
            "アライメント：大きなパーティション {parts} 個はすべて物理セクターの先頭から始まっています。",
            "정렬: 큰 파티션 {parts}개가 모두 물리 섹터의 처음에서 시작합니다.",
        ],
    ),
    (
        "disk.dirty-fine",
        [
            "Unwritten data: {limit} at most (vm.dirty_*). The slowest disk that is written to, {disk}, wrote {speed}/s while it had something to do: {seconds} s.",
            "未書き込みデータ：最大 {limit}（vm.dirty_*）。書き込みのあるディスクで最も遅い {disk} は、稼働中に {speed}/s で書いています：{seconds} 秒。",
            "아직 디스크에 기록되지 않은 데이터: 최대 {limit}(vm.dirty_*). 쓰기가 있는 디스크 중 가장 느린 것은 {disk}이며, 일하는 동안 {speed}/s로 썼습니다: {seconds}초.",
        ],
    ),
    (
        "disk.drain-unknown",
        [
            "how fast these disks write is seen only while they have nothing but large writes to do: look during a copy to them",
            "これらのディスクの書き込み速度は、大きな書き込みだけをしている間にしか分かりません。ディスクへのコピー中に実行してください",
            "이 디스크가 쓰는 속도는 큰 쓰기만 하는 동안에만 보입니다. 디스크로 복사하는 동안 실행하십시오",
        ],
    ),
    (
        "disk.drain-measured",
        [
            "Up to {limit} may wait to be written; {disk} writes {speed}/s now, so that takes {seconds} s: a stall for whoever reaches the limit, and what a power cut loses.",
            "最大 {limit} が未書き込みのまま溜まり得ます。{disk} は現在 {speed}/s で書いており、書き終わるまで {seconds} 秒かかります。上限に達した側はその間停止し、停電時には失われます。",
            "최대 {limit}이(가) 쓰이지 않은 채 쌓일 수 있습니다. {disk}은(는) 지금 {speed}/s로 쓰므로 {seconds}초가 걸립니다. 한도에 이른 쪽은 그동안 멈추고, 정전이 되면 잃습니다.",
        ],
    ),
    (
        "disk.drain-likely",
        [
            "Up to {limit} may wait to be written; {disk} writes {speed}/s at best, so that takes {seconds} s or more: a stall for whoever reaches the limit, and what a power cut loses.",
            "最大 {limit} が未書き込みのまま溜まり得ます。{disk} は最大でも {speed}/s しか書けず、{seconds} 秒以上かかります。上限に達した側はその間停止し、停電時には失われます。",
            "최대 {limit}까지 쓰이지 않은 채 쌓일 수 있습니다. {disk}의 쓰기는 최대 {speed}/s이므로 {seconds}초 이상 걸립니다. 한도에 이른 쪽은 그동안 멈추고, 정전이 되면 잃습니다.",
        ],
    ),
    (
        "disk.drain-remedy",
        [
            "let no more wait than is written in {seconds} s ({wanted})",
            "{seconds} 秒で書ける量（{wanted}）までに抑えます",
            "{seconds}초에 쓸 수 있는 양({wanted})까지로 줄입니다",
        ],
    ),
    (
        "disk.background-late",
        [
            "Writing in the background begins at {background}, not before writers are stopped at {limit}; the kernel takes half of the limit instead.",
            "バックグラウンド書き込みの開始 {background} が、書き込み側が止められる {limit} より低くありません。カーネルは代わりに上限の半分を使います。",
            "백그라운드 쓰기 시작 {background}이(가) 쓰는 쪽이 멈추는 {limit}보다 낮지 않습니다. 커널은 대신 한도의 절반을 씁니다.",
        ],
    ),
    (
        "disk.background-remedy",
        ["begin at a quarter of the limit", "上限の 4 分の 1 で開始します", "한도의 4분의 1에서 시작합니다"],
    ),
    (
        "disk.line-lowered",
        [
            "{disk} runs at {speed} Gb/s ({carries}/s): the kernel has lowered the speed of the link after errors, which come from a cable, a backplane or the disk.",
            "{disk} のリンクは {speed} Gb/s（{carries}/s）です。エラーのためカーネルが速度を下げました。原因はケーブル、バックプレーン、またはディスクです。",
            "{disk}의 링크는 {speed} Gb/s({carries}/s)입니다. 오류 때문에 커널이 속도를 낮췄습니다. 원인은 케이블, 백플레인 또는 디스크입니다.",
        ],
    ),
    (
        "disk.line-lowered-remedy",
        [
            "change the cable or the bay, then look again after a reboot; the kernel's log has the errors",
            "ケーブルまたはベイを替え、再起動後にもう一度確認してください。エラーはカーネルのログにあります",
            "케이블이나 베이를 바꾸고 재부팅한 뒤 다시 확인하십시오. 오류는 커널 로그에 있습니다",
        ],
    ),
    (
        "disk.line-slow",
        [
            "{disk} runs at {speed} Gb/s, which carries {carries}/s; a disk of its kind moves {moves}/s.",
            "{disk} のリンクは {speed} Gb/s で、転送できるのは {carries}/s までです。同種のディスクは {moves}/s を出せます。",
            "{disk}의 링크는 {speed} Gb/s이며 {carries}/s까지 전송할 수 있습니다. 같은 종류의 디스크는 {moves}/s까지 냅니다.",
        ],
    ),
    (
        "disk.line-slow-remedy",
        [
            "use a port of 6 Gb/s, and a cable made for it; a disk, a port multiplier or a backplane of an older kind can do no more (also: the kernel's option libata.force)",
            "6 Gb/s のポートと対応ケーブルを使ってください。古い世代のディスク、ポートマルチプライヤー、バックプレーンではこれが上限です（カーネルオプション libata.force も確認）",
            "6 Gb/s 포트와 그에 맞는 케이블을 쓰십시오. 이전 세대의 디스크, 포트 멀티플라이어, 백플레인에서는 이것이 한계입니다(커널 옵션 libata.force도 확인)",
        ],
    ),
    (
        "disk.lanes-differ",
        [
            "The {lanes} SAS lanes of {port} run at different rates, {slow} and {fast} Gb/s: {is}/s instead of {could_be}/s for {disk} and what else is behind it.",
            "{port} の SAS レーン {lanes} 本の速度が揃っていません（{slow} と {fast} Gb/s）。{disk} などその先のディスクは {could_be}/s ではなく {is}/s に制限されます。",
            "{port}의 SAS 레인 {lanes}개의 속도가 서로 다릅니다({slow} 및 {fast} Gb/s). {disk} 등 그 뒤의 디스크는 {could_be}/s가 아니라 {is}/s로 제한됩니다.",
        ],
    ),
    (
        "disk.lanes-differ-remedy",
        [
            "reseat or change the cable between the controller and the expander",
            "コントローラーとエクスパンダーの間のケーブルを挿し直すか、交換してください",
            "컨트롤러와 익스팬더 사이의 케이블을 다시 꽂거나 바꾸십시오",
        ],
    ),
    (
        "disk.lane-set",
        [
            "The SAS lanes of {port} ({disk}) are set to {fast} Gb/s at most, and can do more: {is}/s instead of {could_be}/s.",
            "{port}（{disk}）の SAS レーンは最大 {fast} Gb/s に設定されていますが、より高速に動作できます：{could_be}/s のうち {is}/s。",
            "{port}({disk})의 SAS 레인은 최대 {fast} Gb/s로 설정되어 있지만 더 빠르게 동작할 수 있습니다: {could_be}/s 중 {is}/s.",
        ],
    ),
    (
        "disk.lane-set-remedy",
        [
            "raise the largest rate of the lane in the controller's firmware, or in the file maximum_linkrate, where it was not lowered on purpose",
            "意図して下げたのでなければ、コントローラーのファームウェアまたは maximum_linkrate ファイルで上限を上げてください",
            "일부러 낮춘 것이 아니라면 컨트롤러 펌웨어나 maximum_linkrate 파일에서 상한을 올리십시오",
        ],
    ),
    (
        "disk.lines-fine",
        [
            "Lines of disks: {lines}, none of them lowered; the slowest is that of {disk}, {speed} Gb/s.",
            "ディスクのリンク：{lines} 本。速度を下げられたものはありません。最も遅いのは {disk} の {speed} Gb/s です。",
            "디스크 링크: {lines}개. 속도가 낮춰진 것은 없습니다. 가장 느린 것은 {disk}의 {speed} Gb/s입니다.",
        ],
    ),
    (
        "disk.md-degraded",
        [
            "The array {array} lacks {missing} of its {disks} disks: it is slower, and a further failure may lose its data.",
            "アレイ {array} はディスク {disks} 台のうち {missing} 台を欠いています。速度が落ち、次の故障でデータを失うおそれがあります。",
            "어레이 {array}에 디스크 {disks}개 중 {missing}개가 없습니다. 속도가 떨어지고, 하나 더 고장 나면 데이터를 잃을 수 있습니다.",
        ],
    ),
    (
        "disk.md-spare",
        [
            "The array {array} lacks {missing} of its {disks} disks: it is slower. Failures that it still survives: {left}.",
            "アレイ {array} はディスク {disks} 台のうち {missing} 台を欠いており、速度が落ちます。あと {left} 台の故障には耐えられます。",
            "어레이 {array}에 디스크 {disks}개 중 {missing}개가 없어 속도가 떨어집니다. 앞으로 {left}개까지는 더 고장 나도 견딥니다.",
        ],
    ),
    (
        "disk.md-recovers",
        [
            "The array {array} lacks {missing} of its {disks} disks, and is being rebuilt on another: it is slower until that is done. Failures that it still survives meanwhile: {left}.",
            "アレイ {array} はディスク {disks} 台のうち {missing} 台を欠いており、別のディスクに再構築中です。完了まで速度が落ちます。それまでに耐えられる故障は {left} 台です。",
            "어레이 {array}에 디스크 {disks}개 중 {missing}개가 없어 다른 디스크에 재구축하고 있습니다. 끝날 때까지 속도가 떨어집니다. 그동안 견딜 수 있는 고장: {left}개.",
        ],
    ),
    (
        "disk.md-places",
        [
            "The mirror {array} has {disks} places, and {missing} of them are empty; no member of it has failed. The system's arrays of storage boxes with free bays look so; elsewhere a disk is missing.",
            "ミラー {array} の {disks} 個のスロットのうち {missing} 個が空です。故障したメンバーはありません。空きベイのある NAS のシステム用アレイでは正常ですが、それ以外ではディスクが欠けています。",
            "미러 {array}의 슬롯 {disks}개 중 {missing}개가 비어 있으며, 고장 난 멤버는 없습니다. 빈 베이가 있는 NAS의 시스템용 어레이라면 정상이고, 그렇지 않다면 디스크가 빠진 것입니다.",
        ],
    ),
    (
        "disk.md-failed",
        [
            "The array {array} lacks {missing} of its {disks} disks, more than it can do without: its data cannot be read in full.",
            "アレイ {array} はディスク {disks} 台のうち {missing} 台を欠いています。冗長性を超えているため、データを完全には読み出せません。",
            "어레이 {array}에 디스크 {disks}개 중 {missing}개가 없습니다. 여분보다 많이 빠져 있어 데이터를 온전히 읽을 수 없습니다.",
        ],
    ),
    (
        "disk.md-broken",
        [
            "The array {array} is broken: it lacks more disks than it can do without.",
            "アレイ {array} は壊れています。冗長性を超える数のディスクが欠けています。",
            "손상된 어레이: {array}. 여분보다 많은 디스크가 빠져 있습니다.",
        ],
    ),
    (
        "disk.md-inactive",
        [
            "The array {array} was found and does not run: too few of its {disks} disks are there, or it was not started.",
            "アレイ {array} は検出されましたが動作していません。ディスク {disks} 台のうち足りないものがあるか、起動されていません。",
            "동작하지 않는 어레이: {array}. 디스크 {disks}개 중 부족한 것이 있거나 시작되지 않았습니다.",
        ],
    ),
    (
        "disk.md-degraded-remedy",
        [
            "see which disk has failed, replace it, and add the new one (mdadm --add)",
            "どのディスクが故障したかを確認して交換し、新しいディスクを追加してください（mdadm --add）",
            "어느 디스크가 고장 났는지 확인하여 바꾸고 새 디스크를 추가하십시오(mdadm --add)",
        ],
    ),
    (
        "disk.md-stopped-remedy",
        [
            "change nothing yet, neither with --add nor with --create, which can destroy the data; look at the members with mdadm --examine, check cables and power, then assemble the array",
            "まだ何も変更しないでください。--add や --create はデータを壊すおそれがあります。mdadm --examine でメンバーを調べ、ケーブルと電源を確認してから、アレイを組み立て直してください（--assemble）",
            "아직 아무것도 바꾸지 마십시오. --add나 --create는 데이터를 파괴할 수 있습니다. mdadm --examine으로 멤버를 살펴보고 케이블과 전원을 확인한 뒤 어레이를 다시 조립하십시오(--assemble)",
        ],
    ),
    (
        "disk.md-syncs",
        [
            "The array {array} is being read or rebuilt in the background ({action}): {share} done, {speed}, about {minutes} minutes left. Other requests share its disks with that.",
            "アレイ {array} は内部処理中です（{action}）：{share} 完了、{speed}、残り約 {minutes} 分。ディスクの時間がそれに割かれます。",
            "어레이 {array}에서 내부 작업이 진행 중입니다({action}): {share} 완료, {speed}, 약 {minutes}분 남음. 디스크가 그 작업에도 시간을 씁니다.",
        ],
    ),
    (
        "disk.md-limit",
        [
            "The array {array} is being rebuilt ({action}) at the kernel's speed limit: {speed}, {share} done, about {minutes} minutes left.",
            "アレイ {array} の処理（{action}）はカーネルの上限で頭打ちになっています：{speed}、{share} 完了、残り約 {minutes} 分。",
            "어레이 {array}의 작업({action})이 커널의 한도에 걸려 있습니다: {speed}, {share} 완료, 약 {minutes}분 남음.",
        ],
    ),
    (
        "disk.md-limit-remedy",
        [
            "raise the limit while the host has little else to do; the rebuild ends sooner, and other requests wait longer meanwhile",
            "ホストがあまり使われていない間、上限を上げます。早く元に戻りますが、その間ほかの処理はディスクを長く待ちます",
            "호스트에 다른 일이 적은 동안 한도를 올리십시오. 더 빨리 끝나지만 그동안 다른 작업은 디스크를 더 오래 기다립니다",
        ],
    ),
    (
        "disk.md-local-remedy",
        [
            "this array has a limit of its own: have it follow that of the system again while the host has little else to do",
            "このアレイには個別の上限が設定されています。ホストがあまり使われていない間、システムの上限に従うよう戻してください",
            "이 어레이에는 따로 정한 한도가 있습니다. 호스트에 다른 일이 적은 동안 다시 시스템의 한도를 따르게 하십시오",
        ],
    ),
    (
        "disk.md-fine",
        [
            "Arrays (md): {arrays}, none of which lacks a disk or is being rebuilt.",
            "アレイ（md）：{arrays} 個。欠けたディスクも再構築中のものもありません。",
            "어레이(md): {arrays}개. 디스크가 빠졌거나 재구축 중인 것은 없습니다.",
        ],
    ),
    (
        "disk.zfs",
        [
            "The ZFS pool {pool} is {state}.",
            "ZFS プール {pool} の状態は {state} です。",
            "ZFS 풀 {pool}의 상태는 {state}입니다.",
        ],
    ),
    (
        "disk.zfs-remedy",
        [
            "see which device it is, and replace it (zpool replace)",
            "どのデバイスかを確認し、交換してください（zpool replace）",
            "어느 장치인지 확인하고 바꾸십시오(zpool replace)",
        ],
    ),
    (
        "disk.zfs-path-remedy",
        [
            "bring the device, or the path to it, back, then let the pool go on (zpool clear)",
            "デバイスまたはそこへの経路を復旧させてから、プールを再開してください（zpool clear）",
            "장치나 그 경로를 되살린 뒤 풀을 다시 동작시키십시오(zpool clear)",
        ],
    ),
    (
        "disk.zfs-look-remedy",
        [
            "see what the pool lacks, and change nothing before that is known",
            "プールに何が欠けているかを確認し、それが分かるまで何も変更しないでください",
            "풀에 무엇이 빠져 있는지 확인하고, 알기 전에는 아무것도 바꾸지 마십시오",
        ],
    ),
    (
        "disk.zfs-fine",
        [
            "ZFS: pools: {pools}, all of them online.",
            "ZFS：プール {pools} 個はすべてオンラインです。",
            "ZFS: 풀 {pools}개가 모두 온라인입니다.",
        ],
    ),
    (
        "disk.btrfs-missing",
        [
            "Device {device} of the btrfs file system {file_system} is missing.",
            "btrfs ファイルシステム {file_system} のデバイス {device} が見つかりません。",
            "btrfs 파일 시스템 {file_system}에서 빠진 장치: {device}.",
        ],
    ),
    (
        "disk.btrfs-missing-remedy",
        [
            "bring the device back, or replace it (btrfs replace)",
            "デバイスを戻すか、交換してください（btrfs replace）",
            "장치를 되돌리거나 바꾸십시오(btrfs replace)",
        ],
    ),
    (
        "disk.btrfs-errors",
        [
            "btrfs has counted errors of device {device} of the file system {file_system} since they were last set to zero: {errors}.",
            "btrfs ファイルシステム {file_system} のデバイス {device} で、前回ゼロに戻して以来のエラーが {errors} 件あります。",
            "btrfs 파일 시스템 {file_system}의 장치 {device}에서 마지막으로 0으로 되돌린 뒤 오류가 {errors}건 있었습니다.",
        ],
    ),
    (
        "disk.btrfs-errors-remedy",
        [
            "look at the disk and its cable, read all data once (btrfs scrub), then set the counters to zero (btrfs device stats -z)",
            "ディスクとケーブルを確認し、全データを一度読み出し（btrfs scrub）、その後カウンタをゼロに戻してください（btrfs device stats -z）",
            "디스크와 케이블을 확인하고 전체 데이터를 한 번 읽은 뒤(btrfs scrub) 카운터를 0으로 되돌리십시오(btrfs device stats -z)",
        ],
    ),
    (
        "disk.btrfs-fine",
        [
            "btrfs: devices of {file_systems} file systems: {devices}; none is missing, and no errors are counted.",
            "btrfs：ファイルシステム {file_systems} 個のデバイス {devices} 台に欠けはなく、エラーもありません。",
            "btrfs: 파일 시스템 {file_systems}개의 장치 {devices}개 모두 있으며 오류가 없습니다.",
        ],
    ),
    (
        "disk.btrfs-there",
        [
            "btrfs: devices of {file_systems} file systems: {devices}; none is missing. This kernel does not show whether errors were counted (from 5.14 on).",
            "btrfs：ファイルシステム {file_systems} 個のデバイス {devices} 台に欠けはありません。エラー数はこのカーネルでは表示されません（5.14 以降）。",
            "btrfs: 파일 시스템 {file_systems}개의 장치 {devices}개 모두 있습니다. 오류 수는 이 커널에서 표시되지 않습니다(5.14부터).",
        ],
    ),
    (
        "disk.cache-off",
        [
            "The write cache of {disks} is off: each write waits until it is on the medium. Many server disks are delivered so, and it is right where nothing flushes the cache.",
            "{disks} の書き込みキャッシュは無効です。書き込みのたびに媒体への記録を待ちます。サーバー用ディスクには出荷時からそうなっているものが多く、フラッシュされない用途では正しい設定です。",
            "{disks}의 쓰기 캐시가 꺼져 있습니다. 쓸 때마다 매체에 기록될 때까지 기다립니다. 서버용 디스크는 출하 때부터 그런 것이 많고, 플러시를 하지 않는 용도에서는 올바른 설정입니다.",
        ],
    ),
    (
        "disk.cache-remedy",
        [
            "switch it on where file systems and databases flush what must last, as those of Linux do",
            "ファイルシステムやデータベースが必要なデータをフラッシュする場合（Linux では通常そうです）は有効にします",
            "파일 시스템과 데이터베이스가 남아야 할 데이터를 플러시한다면(Linux에서는 보통 그렇습니다) 켜십시오",
        ],
    ),
    (
        "disk.cache-fine",
        [
            "Write cache: on for all spinning SATA and SAS disks that report it ({disks}).",
            "書き込みキャッシュ：状態の分かる SATA・SAS の回転ディスク {disks} 台すべてで有効です。",
            "쓰기 캐시: 상태를 알려 주는 SATA·SAS 회전 디스크 {disks}개 모두에서 켜져 있습니다.",
        ],
    ),
    (
        "disk.depth",
        [
            "{disk} is given one command at a time (queue depth 1), so that it can neither work on several nor put them in order.",
            "{disk} には一度に 1 つのコマンドしか渡されません（キュー深度 1）。並行処理も並べ替えもできません。",
            "{disk}에는 명령이 한 번에 하나씩만 전달됩니다(큐 깊이 1). 함께 처리하거나 순서를 바꿀 수 없습니다.",
        ],
    ),
    (
        "disk.depth-remedy",
        [
            "set the controller to AHCI in the firmware, see in the kernel's log why NCQ is off, and give it more commands; disks that NCQ makes fail are left as they are",
            "ファームウェアでコントローラーを AHCI にし、NCQ が無効な理由をカーネルのログで確認してから、コマンド数を増やします。NCQ で不具合の出るディスクはそのままにします",
            "펌웨어에서 컨트롤러를 AHCI로 설정하고, NCQ가 꺼진 이유를 커널 로그에서 확인한 뒤 명령 수를 늘리십시오. NCQ에서 오류가 나는 디스크는 그대로 두십시오",
        ],
    ),
    (
        "disk.depth-fine",
        [
            "Commands at once: {disk} takes the fewest of the disks at SATA and SAS, {depth}.",
            "同時コマンド数：SATA・SAS ディスクで最も少ないのは {disk} の {depth} です。",
            "동시 명령 수: SATA·SAS 디스크 중 가장 적은 것은 {disk}의 {depth}개입니다.",
        ],
    ),
    (
        "disk.zones-aware",
        [
            "{disk} has zones (shingled tracks, host-aware): writes that are not sequential make it rewrite whole zones.",
            "{disk} はゾーン付きです（瓦記録、host-aware）。先頭から順でない書き込みでは、ゾーン全体が書き直されます。",
            "{disk}에는 존이 있습니다(SMR, host-aware). 앞에서부터 차례로 쓰지 않으면 존 전체를 다시 씁니다.",
        ],
    ),
    (
        "disk.zones-managed",
        [
            "{disk} has zones that take sequential writes only (host-managed): most file systems cannot use it.",
            "{disk} は先頭から順にしか書き込めないゾーン付きです（host-managed）。多くのファイルシステムでは使えません。",
            "{disk}에는 앞에서부터 차례로만 쓸 수 있는 존이 있습니다(host-managed). 대부분의 파일 시스템은 이 디스크를 쓸 수 없습니다.",
        ],
    ),
    (
        "disk.zones-remedy",
        [
            "keep what is written once and in order on it, with a file system that knows zones (f2fs, btrfs), or dm-zoned above it",
            "ゾーンに対応したファイルシステム（f2fs、btrfs）または dm-zoned を使い、順に一度だけ書くデータを置きます",
            "존을 지원하는 파일 시스템(f2fs, btrfs)이나 dm-zoned를 쓰고, 차례로 한 번만 쓰는 데이터를 두십시오",
        ],
    ),
    (
        "disk.zones-fine",
        [
            "Zones: no spinning disk of {disks} reports any. Disks that hide their shingled tracks (drive-managed) report none either.",
            "ゾーン：回転ディスク {disks} 台のうち、ゾーン付きと申告するものはありません。瓦記録を隠すディスク（drive-managed）は申告しません。",
            "존: 회전 디스크 {disks}개 중 존이 있다고 알리는 것은 없습니다. SMR을 숨기는 디스크(drive-managed)는 알리지 않습니다.",
        ],
    ),
    (
        "disk.discard",
        [
            "{layer} passes no discards to {disks}, which take them: the disks never learn which blocks are free, so that flash writes slower and wears sooner.",
            "{layer} は、対応しているディスク {disks} に discard を渡しません。空き領域がディスクに伝わらず、フラッシュは書き込みが遅くなり消耗も早まります。",
            "{layer}에서 아래 디스크({disks})로 discard가 전달되지 않습니다. 디스크는 discard를 지원하지만 빈 공간을 알 수 없어, 플래시의 쓰기가 느려지고 더 빨리 마모됩니다.",
        ],
    ),
    (
        "disk.discard-crypt-remedy",
        [
            "allow discards where it may be seen from outside which blocks are free (with LUKS2 --persistent keeps it), then run fstrim",
            "どのブロックが空きかを外部に知られてもよい場合は discard を許可し（LUKS2 では --persistent で保持）、fstrim を実行します",
            "어느 블록이 비었는지 밖에서 알아도 된다면 discard를 허용하고(LUKS2에서는 --persistent로 유지) fstrim을 실행하십시오",
        ],
    ),
    (
        "disk.discard-md-remedy",
        [
            "arrays with parity pass them only with the option devices_handle_discard_safely of the module raid456, which is right for disks that read zeroes afterwards, and no others",
            "パリティ付きアレイは、モジュール raid456 のオプション devices_handle_discard_safely がある場合だけ渡します。discard 後に必ずゼロが読めるディスクでのみ使ってください",
            "패리티가 있는 어레이는 raid456 모듈의 devices_handle_discard_safely 옵션이 있을 때만 전달합니다. discard 뒤에 항상 0이 읽히는 디스크에서만 쓰십시오",
        ],
    ),
    (
        "disk.discard-remedy",
        [
            "see of which kind the layer is; some kinds have a flag for it, and some (snapshots of older kernels) pass none",
            "層の種類を確認してください。フラグを持つ種類もあれば、渡さない種類（古いカーネルのスナップショット）もあります",
            "계층의 종류를 확인하십시오. 플래그가 있는 종류도 있고, 전달하지 않는 종류(이전 커널의 스냅샷)도 있습니다",
        ],
    ),
    (
        "disk.discard-fine",
        [
            "Discards: all layers above disks that take them pass them on ({layers}).",
            "discard：{layers} 個の層が対応ディスクに渡しています。",
            "discard: 계층 {layers}개가 지원하는 디스크로 전달합니다.",
        ],
    ),
    (
        "disk.crypt-table",
        [
            "as root, dmsetup table shows whether no_read_workqueue and no_write_workqueue are set, which spare a fast disk a detour by other threads",
            "no_read_workqueue と no_write_workqueue の有無は、root で dmsetup table を実行すると分かります。設定すると、高速なディスクで別スレッドを経由しません",
            "no_read_workqueue와 no_write_workqueue가 설정되었는지는 root로 dmsetup table을 실행하면 보입니다. 설정하면 빠른 디스크가 다른 스레드를 거치지 않습니다",
        ],
    ),
    (
        "disk.nvme-dead",
        [
            "The kernel has given up the NVMe controller {controller}: its disks cannot be used until it is reset.",
            "カーネルは NVMe コントローラー {controller} を切り離しました。リセットするまでそのディスクは使えません。",
            "커널이 포기한 NVMe 컨트롤러: {controller}. 초기화할 때까지 그 디스크는 쓸 수 없습니다.",
        ],
    ),
    (
        "disk.nvme-away",
        [
            "The NVMe controller {controller} does not answer ({state}): requests to its disks wait.",
            "NVMe コントローラー {controller} が応答しません（{state}）。そのディスクへの要求は待たされます。",
            "응답하지 않는 NVMe 컨트롤러: {controller}({state}). 그 디스크에 대한 요청은 기다리게 됩니다.",
        ],
    ),
    (
        "disk.nvme-path-dead",
        [
            "The kernel has given up the NVMe controller {controller}: this path to its disks cannot be used until it is reset. Another controller of the same subsystem answers.",
            "カーネルは NVMe コントローラー {controller} を切り離しました。リセットするまでこの経路は使えません。同じサブシステムの別のコントローラーは応答しています。",
            "커널이 포기한 NVMe 컨트롤러: {controller}. 초기화할 때까지 이 경로는 쓸 수 없습니다. 같은 서브시스템의 다른 컨트롤러는 응답합니다.",
        ],
    ),
    (
        "disk.nvme-path-away",
        [
            "The NVMe controller {controller} does not answer ({state}): this path to its disks cannot be used meanwhile. Another controller of the same subsystem answers.",
            "NVMe コントローラー {controller} が応答しません（{state}）。その間この経路は使えません。同じサブシステムの別のコントローラーは応答しています。",
            "응답하지 않는 NVMe 컨트롤러: {controller}({state}). 그동안 이 경로는 쓸 수 없습니다. 같은 서브시스템의 다른 컨트롤러는 응답합니다.",
        ],
    ),
    (
        "disk.nvme-remedy",
        [
            "read why in the kernel's log; look at the slot, the firmware and the temperature, or at the network where the disk is remote",
            "カーネルのログで理由を確認し、スロット、ファームウェア、温度、リモートの場合はネットワークを調べてください",
            "커널 로그에서 이유를 확인하고 슬롯, 펌웨어, 온도, 원격 디스크라면 네트워크를 살펴보십시오",
        ],
    ),
    (
        "disk.tells-nothing",
        [
            "the file says neither that all is well nor what is wrong: ask the file system's own tool (btrfs device stats, zpool status)",
            "このファイルからは正常とも異常とも分かりません。ファイルシステムのツール（btrfs device stats、zpool status）で確認してください",
            "이 파일로는 정상인지 이상인지 알 수 없습니다. 파일 시스템의 도구(btrfs device stats, zpool status)로 확인하십시오",
        ],
    ),
    (
        "disk.nvme-fine",
        [
            "NVMe controllers: {controllers}, all of which answer. Wear is not looked at here: only the disks themselves know it (nvme smart-log).",
            "NVMe コントローラー：{controllers} 台すべてが応答しています。消耗度はディスク自身に問い合わせるもので（nvme smart-log）、ここでは見ていません。",
            "NVMe 컨트롤러: {controllers}개 모두 응답합니다. 마모 정도는 디스크에 직접 물어야 하며(nvme smart-log) 여기서는 보지 않습니다.",
        ],
    ),
    (
        "disk.index",
        [
            "The indexes of {volumes} volumes with {tiers} of tiers take {index}, {share} of the {ram} of RAM: that much less is left for caches.",
            "{volumes} 個のボリューム（ティア計 {tiers}）の索引が {index}、RAM {ram} の {share} を占めます。その分キャッシュが減ります。",
            "볼륨 {volumes}개(티어 합계 {tiers})의 색인이 {index}, RAM {ram}의 {share}을(를) 차지합니다. 그만큼 캐시가 줄어듭니다.",
        ],
    ),
    (
        "disk.index-fine",
        [
            "Index: {volumes} volumes with {tiers} of tiers take {index}, {share} of the {ram} of RAM.",
            "索引：{volumes} 個のボリューム（ティア計 {tiers}）で {index}、RAM {ram} の {share} です。",
            "색인: 볼륨 {volumes}개(티어 합계 {tiers})에 {index}, RAM {ram}의 {share}입니다.",
        ],
    ),
    (
        "disk.index-remedy",
        [
            "smaller tiers (forebay volume set NAME --tier-size), or more RAM",
            "ティアを小さくする（forebay volume set NAME --tier-size）か、RAM を増やしてください",
            "티어를 줄이거나(forebay volume set NAME --tier-size) RAM을 늘리십시오",
        ],
    ),
    (
        "bmc.fine",
        [
            "Board: sensors that are ok: {sensors}; entries of the event log: {events}, none of them of failing hardware.",
            "ボード：センサー {sensors} 個が正常で、イベントログ {events} 件にハードウェア故障を示すものはありません。",
            "보드: 센서 {sensors}개가 정상이고, 이벤트 로그 {events}건 중 하드웨어 고장을 알리는 것은 없습니다.",
        ],
    ),
    (
        "bmc.critical",
        [
            "The board's controller calls {sensor} critical: {value}.",
            "ボードのコントローラーが {sensor} を危険と判定しています：{value}。",
            "보드 컨트롤러가 {sensor}을(를) 위험으로 판정합니다: {value}.",
        ],
    ),
    (
        "bmc.warning",
        [
            "The board's controller warns of {sensor}: {value}.",
            "ボードのコントローラーが {sensor} について警告しています：{value}。",
            "보드 컨트롤러가 {sensor}에 대해 경고합니다: {value}.",
        ],
    ),
    (
        "bmc.sensor-remedy",
        [
            "look at the part, and at the sensor's limits",
            "該当部品とセンサーのしきい値を確認してください",
            "해당 부품과 센서의 한계값을 확인하십시오",
        ],
    ),
    (
        "bmc.log",
        [
            "The board's event log holds {faults} entries of failing hardware.",
            "ボードのイベントログに、ハードウェア故障を示す記録が {faults} 件あります。",
            "보드의 이벤트 로그에 하드웨어 고장을 알리는 기록이 {faults}건 있습니다.",
        ],
    ),
    (
        "bmc.log-remedy",
        [
            "read them, replace what fails, then clear the log (ipmitool sel clear)",
            "内容を確認し、故障部品を交換してからログを消去してください（ipmitool sel clear）",
            "내용을 읽고 고장 난 부품을 바꾼 뒤 로그를 지우십시오(ipmitool sel clear)",
        ],
    ),
    (
        "bmc.install",
        [
            "install the package ipmitool",
            "ipmitool パッケージをインストールしてください",
            "ipmitool 패키지를 설치하십시오",
        ],
    ),
    (
        "bmc.try",
        [
            "see what ipmitool -v sdr list says",
            "ipmitool -v sdr list の出力を確認してください",
            "ipmitool -v sdr list의 출력을 확인하십시오",
        ],
    ),
    (
        "bmc.fence-never",
        [
            "The fence of {node} was never proven from here: whether it works is found out when {node} hangs.",
            "{node} のフェンスはこのノードから一度も実証されていません。動くかどうかは {node} が止まったときに初めて分かります。",
            "{node}의 펜스는 이 노드에서 한 번도 증명되지 않았습니다. 동작하는지는 {node}이(가) 멈출 때에야 알게 됩니다.",
        ],
    ),
    (
        "bmc.fence-old",
        [
            "The fence of {node} was last proven from here {days} days ago.",
            "{node} のフェンスが最後に実証されたのは {days} 日前です。",
            "{node}의 펜스가 마지막으로 증명된 것은 {days}일 전입니다.",
        ],
    ),
    (
        "bmc.fence-remedy",
        [
            "prove it while {node} may be switched off",
            "{node} の電源を切ってよいときに実証してください",
            "{node}의 전원을 꺼도 될 때 증명하십시오",
        ],
    ),
    (
        "bmc.fences-fine",
        [
            "Fences: {fences}, each proven within the last {days} days.",
            "フェンス：{fences} 個。いずれも {days} 日以内に実証されています。",
            "펜스: {fences}개. 모두 최근 {days}일 안에 증명되었습니다.",
        ],
    ),
];
