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
            "Unwritten data: {limit} at most (vm.dirty_*), which a disk that writes {needed}/s has written in {seconds} s.",
            "未書き込みデータ：最大 {limit}（vm.dirty_*）。毎秒 {needed} を書くディスクなら {seconds} 秒で書き終わります。",
            "쓰지 않은 데이터: 최대 {limit}(vm.dirty_*). 초당 {needed}을(를) 쓰는 디스크라면 {seconds}초에 다 씁니다.",
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
            "Up to {limit} may wait to be written; the disks of this host write {speed}/s together at best, so that takes {seconds} s or more: a stall for whoever reaches the limit, and what a power cut loses.",
            "最大 {limit} が未書き込みのまま溜まり得ます。このホストのディスクは合わせて最大でも {speed}/s しか書けず、{seconds} 秒以上かかります。上限に達した側はその間停止し、停電時には失われます。",
            "최대 {limit}이(가) 쓰이지 않은 채 쌓일 수 있습니다. 이 호스트의 디스크는 합해서 최대 {speed}/s를 쓰므로 {seconds}초 이상 걸립니다. 한도에 이른 쪽은 그동안 멈추고, 정전이 되면 잃습니다.",
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
