//! Words of the checks of NUMA placement and interrupts.

use super::Row;

/// Sentences of the checks of placement and interrupts, by their keys.
pub const ROWS: &[Row] = &[
    (
        "numa.one-socket",
        [
            "Distance: all {cpus} CPUs are in one socket or NUMA node, so no interface, disk or interrupt is on a far one.",
            "距離：{cpus} 個の CPU はすべて 1 つのソケットまたは NUMA ノードにあり、遠い側にある NIC・ディスク・割り込みはありません。",
            "거리: CPU {cpus}개가 모두 한 소켓이나 NUMA 노드에 있어, 먼 쪽에 있는 NIC·디스크·인터럽트가 없습니다.",
        ],
    ),
    (
        "numa.together",
        [
            "Distance: all disks ({disks}) are in the sockets of {ports}; no byte has to cross between sockets.",
            "距離：ディスク {disks} 台は {ports} と同じソケットにあり、ソケット間を渡る必要のあるデータはありません。",
            "거리: 디스크 {disks}개가 {ports}와(과) 같은 소켓에 있어, 소켓 사이를 건너야 하는 데이터가 없습니다.",
        ],
    ),
    (
        "numa.node-unknown",
        [
            "the firmware does not tell the node of the device; the board's manual shows which slot belongs to which CPU",
            "ファームウェアがデバイスのノードを知らせていません。どのスロットがどの CPU に属するかはマザーボードの説明書を確認してください",
            "펌웨어가 장치의 노드를 알려 주지 않습니다. 어느 슬롯이 어느 CPU에 속하는지는 메인보드 설명서를 확인하십시오",
        ],
    ),
    (
        "numa.apart",
        [
            "{disks} at node {disk_node}, but {ports} at node {port_node}: each byte from one to the other crosses the link between the sockets at least once.",
            "{disks} はノード {disk_node}、{ports} はノード {port_node} にあります。両者の間のデータは必ず 1 回以上ソケット間リンクを渡ります。",
            "{disks}은(는) 노드 {disk_node}, {ports}은(는) 노드 {port_node}에 있습니다. 둘 사이의 데이터는 소켓 간 링크를 반드시 한 번 이상 건넙니다.",
        ],
    ),
    (
        "numa.apart-in-use",
        [
            "{disks} at node {disk_node} moves {through_disks}/s now, {ports} at node {port_node} {through_ports}/s: each byte from one to the other crosses the link between the sockets at least once.",
            "ノード {disk_node} の {disks} は現在 {through_disks}/s、ノード {port_node} の {ports} は {through_ports}/s を転送しています。両者の間のデータは必ず 1 回以上ソケット間リンクを渡ります。",
            "노드 {disk_node}의 {disks}은(는) 현재 {through_disks}/s, 노드 {port_node}의 {ports}은(는) {through_ports}/s를 옮기고 있습니다. 둘 사이의 데이터는 소켓 간 링크를 반드시 한 번 이상 건넙니다.",
        ],
    ),
    (
        "numa.apart-remedy",
        [
            "put the card and the disks into slots of one socket; else let the server and its buffers be at node {port_node}: then a byte crosses once, not 3 to 4 times as when they are placed blindly",
            "カードとディスクを同じソケットのスロットに移してください。できない場合はサーバーとそのバッファをノード {port_node} に置けば、渡るのは 1 回だけです（配置しない場合は 3～4 回）",
            "카드와 디스크를 같은 소켓의 슬롯으로 옮기십시오. 그럴 수 없으면 서버와 그 버퍼를 노드 {port_node}에 두십시오. 그러면 한 번만 건넙니다(배치하지 않으면 3~4번)",
        ],
    ),
    (
        "numa.irq-near",
        [
            "Interrupts: of {devices} devices that interrupt often, none sends more than {share} to a far socket.",
            "割り込み：頻繁に割り込む {devices} 個のデバイスのうち、遠いソケットへ {share} を超えて送るものはありません。",
            "인터럽트: 자주 인터럽트하는 장치 {devices}개 중 먼 소켓으로 {share}보다 많이 보내는 것은 없습니다.",
        ],
    ),
    (
        "numa.irq-far-now",
        [
            "{share} of the interrupts of {device} ({rate}/s) run on CPUs of another socket than its own, node {node}.",
            "{device} の割り込み（毎秒 {rate} 回）の {share} が、デバイスのあるノード {node} とは別のソケットの CPU で処理されています。",
            "{device}의 인터럽트(초당 {rate}회) 중 {share}이(가) 장치가 있는 노드 {node}와 다른 소켓의 CPU에서 처리됩니다.",
        ],
    ),
    (
        "numa.irq-far",
        [
            "Interrupts of {device} that made {share} of its {count} since boot now go to CPUs of another socket than its own, node {node}.",
            "{device} の起動以降の割り込み {count} 回のうち {share} にあたるものが、現在デバイスのあるノード {node} とは別のソケットの CPU に送られます。",
            "{device}의 부팅 이후 인터럽트 {count}회 중 {share}에 해당하는 것이 현재 장치가 있는 노드 {node}와 다른 소켓의 CPU로 갑니다.",
        ],
    ),
    (
        "numa.irq-remedy",
        [
            "send the interrupts of {device} to the cores of node {node}, one after the other",
            "{device} の割り込みをノード {node} のコアに順に割り当てます",
            "{device}의 인터럽트를 노드 {node}의 코어에 차례로 보냅니다",
        ],
    ),
    (
        "numa.irq-links",
        [
            "know that Forebay's links run on node {node} (CPUs {cpus}): interrupts of {device} that end there need no way to the other socket",
            "参考：Forebay のリンクはノード {node}（CPU {cpus}）で動いています。{device} の割り込みがそこで処理されれば別のソケットを経由しません",
            "참고: Forebay의 링크는 노드 {node}(CPU {cpus})에서 실행됩니다. {device}의 인터럽트가 그곳에서 처리되면 다른 소켓을 거치지 않습니다",
        ],
    ),
    (
        "numa.queues",
        [
            "Queues of {disk}: {queues} for {cpus} CPUs; up to {most} CPUs share one, and wait for each other under load.",
            "{disk} のキューは CPU {cpus} 個に対して {queues} 個です。最大 {most} 個の CPU が 1 つを共有し、負荷時に互いを待ちます。",
            "{disk}의 큐는 CPU {cpus}개에 {queues}개입니다. 최대 {most}개의 CPU가 하나를 나누어 쓰며 부하가 걸리면 서로를 기다립니다.",
        ],
    ),
    (
        "numa.queues-remedy",
        [
            "the device grants no more, or the driver was told so (nvme parameters poll_queues and write_queues): let the busy threads run on CPUs of different queues",
            "デバイスがこれ以上許さないか、ドライバーの設定（nvme の poll_queues と write_queues）によります。負荷の高いスレッドを別々のキューの CPU で動かしてください",
            "장치가 더 허용하지 않거나 드라이버 설정(nvme의 poll_queues, write_queues) 때문입니다. 바쁜 스레드를 서로 다른 큐의 CPU에서 실행하십시오",
        ],
    ),
    (
        "numa.queues-fine",
        [
            "NVMe queues: {disk} has the fewest, {queues} for {cpus} CPUs.",
            "NVMe キュー：最も少ない {disk} でも CPU {cpus} 個に対して {queues} 個あります。",
            "NVMe 큐: 가장 적은 {disk}도 CPU {cpus}개에 {queues}개가 있습니다.",
        ],
    ),
    (
        "numa.process-near",
        [
            "Placement: {server} spends {share} of its CPU time in another socket than {port}.",
            "配置：{server} が {port} と別のソケットで使う CPU 時間は {share} です。",
            "배치: {server}이(가) {port}와 다른 소켓에서 쓰는 CPU 시간은 {share}입니다.",
        ],
    ),
    (
        "numa.process-far",
        [
            "{server} (process {pid}): threads with {share} of its CPU time ran last in another socket than {port}, which is at node {node}.",
            "{server}（プロセス {pid}）：CPU 時間の {share} を占めるスレッドが、ノード {node} にある {port} とは別のソケットで最後に動いていました。",
            "{server}(프로세스 {pid}): CPU 시간의 {share}을(를) 차지하는 스레드가 노드 {node}에 있는 {port}와 다른 소켓에서 마지막으로 실행되었습니다.",
        ],
    ),
    (
        "numa.process-kept-away",
        [
            "{server} (process {pid}) may only run in another socket than {port}, which is at node {node}: every byte that it serves crosses.",
            "{server}（プロセス {pid}）は、ノード {node} にある {port} とは別のソケットでしか動けません。提供するデータはすべてソケット間を渡ります。",
            "{server}(프로세스 {pid})은(는) 노드 {node}에 있는 {port}와 다른 소켓에서만 실행될 수 있습니다. 제공하는 모든 데이터가 소켓 사이를 건넙니다.",
        ],
    ),
    (
        "numa.process-remedy",
        [
            "let {server} run on CPUs {cpus}; this holds until the next start",
            "{server} を CPU {cpus} で動かしてください（次の起動まで有効）",
            "{server}을(를) CPU {cpus}에서 실행하십시오(다음 시작까지 유효)",
        ],
    ),
    (
        "numa.nfsd-remedy",
        [
            "let each node have its own pool of nfsd threads; set it while the NFS server is stopped",
            "ノードごとに nfsd スレッドのプールを持たせます。NFS サーバーの停止中に設定してください",
            "노드마다 nfsd 스레드 풀을 따로 둡니다. NFS 서버가 멈춘 동안 설정하십시오",
        ],
    ),
    (
        "numa.buffers-far",
        [
            "{far} of the daemon's {all} (process {pid}) are in memory of another socket than {port}, which is at node {node}.",
            "デーモン（プロセス {pid}）のメモリ {all} のうち {far} が、ノード {node} にある {port} とは別のソケットのメモリにあります。",
            "데몬(프로세스 {pid})의 메모리 {all} 중 {far}이(가) 노드 {node}에 있는 {port}와 다른 소켓의 메모리에 있습니다.",
        ],
    ),
    (
        "numa.buffers-near",
        [
            "Buffers: {share} of the daemon's {all} are in a far socket.",
            "バッファ：デーモンのメモリ {all} のうち遠いソケットにあるのは {share} です。",
            "버퍼: 데몬의 메모리 {all} 중 먼 소켓에 있는 것은 {share}입니다.",
        ],
    ),
    (
        "numa.buffers-remedy",
        [
            "move the pages to the interface's node while it runs (package numactl)",
            "動作中にページを NIC のノードへ移します（numactl パッケージ）",
            "실행 중에 페이지를 NIC의 노드로 옮깁니다(numactl 패키지)",
        ],
    ),
    (
        "numa.elsewhere",
        [
            "Node {node} is full: {rate}/s of memory that was asked of it ({share} of all) came from other nodes.",
            "ノード {node} のメモリが不足しています。このノードへの要求のうち {rate}/s（{share}）が他のノードから割り当てられています。",
            "노드 {node}의 메모리가 부족합니다. 이 노드에 요청된 것 중 {rate}/s({share})가 다른 노드에서 할당됩니다.",
        ],
    ),
    (
        "numa.elsewhere-remedy",
        [
            "move a large program away from node {node}, or give its memory to both nodes (numactl --interleave=all)",
            "大きなプログラムをノード {node} から移すか、そのメモリを両ノードに分けてください（numactl --interleave=all）",
            "큰 프로그램을 노드 {node}에서 옮기거나 그 메모리를 여러 노드에 나누십시오(numactl --interleave=all)",
        ],
    ),
    (
        "numa.cache-near",
        [
            "Page cache that {server} serves from: {share} of {all} are in the socket of {port} (node {node}), {far} in another.",
            "ページキャッシュ：{server} が使う {all} のうち {share} が {port} のソケット（ノード {node}）にあり、別のソケットにあるのは {far} です。",
            "페이지 캐시: {server}이(가) 쓰는 {all} 중 {share}이(가) {port}의 소켓(노드 {node})에 있고, 다른 소켓에는 {far}이(가) 있습니다.",
        ],
    ),
    (
        "numa.cache-far",
        [
            "{far} of the {all} of page cache are in another socket than {port} (node {node}), only {share} near it: what {server} serves from there crosses the link between the sockets.",
            "ページキャッシュ {all} のうち {far} が {port}（ノード {node}）とは別のソケットにあり、近くにあるのは {share} だけです。{server} がそこから提供するデータはソケット間リンクを渡ります。",
            "페이지 캐시 {all} 중 {far}이(가) {port}(노드 {node})와 다른 소켓에 있고, 가까이에는 {share}뿐입니다. {server}이(가) 거기서 제공하는 데이터는 소켓 간 링크를 건넙니다.",
        ],
    ),
    (
        "numa.cache-remedy",
        [
            "a page stays on the node of whoever read it first: let what fills the cache (backup, prefetch, the server itself) run on CPUs {cpus} of node {node}",
            "ページは最初に読んだ側のノードに残ります。キャッシュを埋めるもの（バックアップ、先読み、サーバー自体）をノード {node} の CPU {cpus} で動かしてください",
            "페이지는 처음 읽은 쪽의 노드에 남습니다. 캐시를 채우는 것(백업, 미리 읽기, 서버 자체)을 노드 {node}의 CPU {cpus}에서 실행하십시오",
        ],
    ),
    (
        "dma.far",
        [
            "{share} of what devices of socket {socket} move is memory of another socket: {far} of {all} cross the link between them.",
            "ソケット {socket} のデバイスが読み書きするデータの {share} は別のソケットのメモリにあります。{all} のうち {far} がソケット間リンクを渡ります。",
            "소켓 {socket}의 장치가 읽고 쓰는 데이터의 {share}이(가) 다른 소켓의 메모리에 있습니다. {all} 중 {far}이(가) 소켓 간 링크를 건넙니다.",
        ],
    ),
    (
        "dma.near",
        [
            "Memory that devices move: {share} of the {all} that devices of socket {socket} move is of another socket ({far}).",
            "デバイスが使うメモリ：ソケット {socket} のデバイスが読み書きする {all} のうち、別のソケットのメモリは {share}（{far}）です。",
            "장치가 쓰는 메모리: 소켓 {socket}의 장치가 읽고 쓰는 {all} 중 다른 소켓의 메모리는 {share}({far})입니다.",
        ],
    ),
    (
        "dma.idle",
        [
            "Memory that devices move: {all} in all, too little to load the link between sockets.",
            "デバイスが使うメモリ：全体で {all} であり、ソケット間リンクの負荷になりません。",
            "장치가 쓰는 메모리: 모두 {all}로, 소켓 간 링크에 부담이 되지 않습니다.",
        ],
    ),
    (
        "dma.remedy",
        [
            "have the data of these devices lie in memory of socket {socket} (CPUs {cpus}): irq-far, process-far, buffers-far and page-cache-far say what is elsewhere; where a disk and an interface are at different sockets (numa-apart), one of the two has to cross",
            "これらのデバイスのデータをソケット {socket}（CPU {cpus}）のメモリに置いてください。何が別の場所にあるかは irq-far、process-far、buffers-far、page-cache-far が示します。ディスクと NIC が別々のソケットにある場合（numa-apart）、どちらか一方は必ず渡ります",
            "이 장치들의 데이터를 소켓 {socket}(CPU {cpus})의 메모리에 두십시오. 무엇이 다른 곳에 있는지는 irq-far, process-far, buffers-far, page-cache-far가 알려 줍니다. 디스크와 NIC가 서로 다른 소켓에 있으면(numa-apart) 둘 중 하나는 반드시 건넙니다",
        ],
    ),
    (
        "dma.no-right",
        [
            "counters of the processor: run it as root, or with CAP_PERFMON",
            "プロセッサのカウンタを使うには、root または CAP_PERFMON で実行してください",
            "프로세서 카운터를 쓰려면 root 또는 CAP_PERFMON으로 실행하십시오",
        ],
    ),
    (
        "dma.refused",
        [
            "the kernel refused this counter; `perf stat -a -e COUNTER sleep 1` as root shows whether it grants it to anybody",
            "カーネルがこのカウンタを拒否しました。root で `perf stat -a -e カウンタ sleep 1` を実行すると、使えるかどうかがわかります",
            "커널이 이 카운터를 거부했습니다. root 권한으로 `perf stat -a -e 카운터 sleep 1`을 실행하면 쓸 수 있는지 알 수 있습니다",
        ],
    ),
    (
        "dma.no-counters",
        [
            "load the kernel module amd_uncore or intel_uncore, or run a kernel that knows this processor",
            "カーネルモジュール amd_uncore または intel_uncore を読み込むか、このプロセッサに対応したカーネルを使ってください",
            "커널 모듈 amd_uncore 또는 intel_uncore를 불러오거나 이 프로세서를 지원하는 커널을 쓰십시오",
        ],
    ),
    (
        "dma.not-published",
        [
            "no such counters are known of this processor; process-far, buffers-far and page-cache-far say where the data lies",
            "このプロセッサにはそのようなカウンタが知られていません。データの場所は process-far、buffers-far、page-cache-far が示します",
            "이 프로세서에는 알려진 해당 카운터가 없습니다. 데이터의 위치는 process-far, buffers-far, page-cache-far가 알려 줍니다",
        ],
    ),
    (
        "dma.shared",
        [
            "other programs count with the same registers (perf, pcm); look again when they have ended",
            "ほかのプログラム（perf、pcm）が同じレジスタを使っています。終了後にもう一度診断してください",
            "다른 프로그램(perf, pcm)이 같은 레지스터를 쓰고 있습니다. 끝난 뒤 다시 진단하십시오",
        ],
    ),
    (
        "numa.drift-fine",
        [
            "Placement of {count} interrupts: as it was set, or kept in the baseline.",
            "割り込み {count} 個の配置：設定時またはベースラインのままです。",
            "인터럽트 {count}개의 배치: 설정했거나 기준선에 남긴 그대로입니다.",
        ],
    ),
    (
        "numa.left",
        [
            "{count} interrupts of {device} have left its node since the baseline of {time} (kernel {before} then, {kernel} now); such a loss has cost 29 % of write throughput.",
            "{time} のベースライン以降、{device} の割り込み {count} 個がデバイスのノードから離れました（カーネル：当時 {before}、現在 {kernel}）。同様の変化で書き込み性能が 29 % 低下した例があります。",
            "{time}의 기준선 이후 {device}의 인터럽트 {count}개가 장치의 노드를 떠났습니다(커널: 당시 {before}, 현재 {kernel}). 같은 변화로 쓰기 처리량이 29 % 줄어든 사례가 있습니다.",
        ],
    ),
    (
        "numa.left-remedy",
        [
            "send the interrupts of {device} where they went before",
            "{device} の割り込みを以前の配置に戻します",
            "{device}의 인터럽트를 이전 위치로 되돌립니다",
        ],
    ),
    (
        "numa.undone",
        [
            "{count} interrupts that forebay had placed ({interrupts}) are elsewhere now: something has moved them since.",
            "forebay が配置した割り込み {count} 個（{interrupts}）が別の場所にあります。その後何かが移動しました。",
            "forebay가 배치한 인터럽트 {count}개({interrupts})가 다른 곳에 있습니다. 그 뒤 무언가가 옮겼습니다.",
        ],
    ),
    (
        "numa.undone-irqbalance",
        [
            "{count} interrupts that forebay had placed ({interrupts}) are elsewhere now, and irqbalance runs: it moves what it is not told to leave.",
            "forebay が配置した割り込み {count} 個（{interrupts}）が別の場所にあり、irqbalance が動作しています。irqbalance は除外されていないものを移動します。",
            "forebay가 배치한 인터럽트 {count}개({interrupts})가 다른 곳에 있고 irqbalance가 실행 중입니다. irqbalance는 제외하라고 하지 않은 것을 옮깁니다.",
        ],
    ),
    (
        "numa.undone-remedy",
        [
            "find what sets interrupts (a driver's script, tuned), then apply the placement again",
            "割り込みを設定しているもの（ドライバーのスクリプト、tuned）を探し、再度配置してください",
            "인터럽트를 설정하는 것(드라이버 스크립트, tuned)을 찾은 뒤 다시 배치하십시오",
        ],
    ),
    (
        "numa.undone-irqbalance-remedy",
        [
            "have irqbalance ask before it moves an interrupt: install packaging/irqbalance-policy and name it in /etc/default/irqbalance (or /etc/sysconfig/irqbalance), start irqbalance anew, then apply the placement again",
            "irqbalance が割り込みを移動する前に確認するようにしてください。packaging/irqbalance-policy を導入して /etc/default/irqbalance（または /etc/sysconfig/irqbalance）で指定し、irqbalance を再起動してから再度配置してください",
            "irqbalance가 인터럽트를 옮기기 전에 확인하게 하십시오. packaging/irqbalance-policy를 설치해 /etc/default/irqbalance(또는 /etc/sysconfig/irqbalance)에 지정하고 irqbalance를 다시 시작한 뒤 배치를 다시 적용하십시오",
        ],
    ),
];
