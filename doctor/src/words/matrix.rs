//! Words of the matrix, and of the checks that compare with it.

use super::Row;

/// Sentences of the matrix and the checks that need it, by their keys.
pub const ROWS: &[Row] = &[
    (
        "matrix.busy",
        [
            "the host is busy: {busy} % of its CPUs' time is used, and above {max} % what is measured is what its programs leave",
            "ホストが使用中です: CPU 時間の {busy} % が使われています。{max} % を超えると、測定値はほかのプログラムが残した分になります",
            "호스트가 사용 중입니다: CPU 시간의 {busy} %가 쓰이고 있으며, {max} %를 넘으면 다른 프로그램이 남긴 만큼만 측정됩니다",
        ],
    ),
    (
        "matrix.small",
        [
            "node {node} has {free} MiB of free memory, and the measurement wants {needed} MiB (buffers of at least four times the caches, and as much again free)",
            "ノード {node} の空きメモリは {free} MiB ですが、測定には {needed} MiB 必要です (キャッシュの 4 倍以上のバッファと、同量の空き)",
            "노드 {node}의 여유 메모리는 {free} MiB인데 측정에는 {needed} MiB가 필요합니다 (캐시의 4배 이상인 버퍼와 같은 크기의 여유분)",
        ],
    ),
    (
        "matrix.refused",
        [
            "not measured: {why}. Wait until the host is idle, or measure all the same with --force",
            "測定しませんでした: {why}。ホストが空くまで待つか、--force を付けて測定してください",
            "측정하지 않았습니다: {why}. 호스트가 한가해질 때까지 기다리거나 --force로 측정하십시오",
        ],
    ),
    (
        "matrix.forced",
        [
            "Measured with --force, so these figures may be wrong: {why}.",
            "--force で測定したため、以下の値は正確でない可能性があります: {why}。",
            "--force로 측정했으므로 다음 값은 정확하지 않을 수 있습니다: {why}.",
        ],
    ),
    (
        "matrix.kept",
        [
            "kept in {path}: forebay doctor compares with it until the next boot",
            "{path} に保存しました: 次の起動まで forebay doctor が比較に使います",
            "{path}에 보관했습니다: 다음 부팅까지 forebay doctor가 비교에 사용합니다",
        ],
    ),
    (
        "matrix.noisy",
        [
            "the host was not idle: windows of one figure differ by up to {spread} %",
            "ホストはアイドルではありませんでした: 同じ項目の測定値に最大 {spread} % の差があります",
            "호스트가 유휴 상태가 아니었습니다: 한 항목의 측정값이 최대 {spread} % 차이 납니다",
        ],
    ),
    (
        "matrix.tlb",
        [
            "not all memory was in huge pages: what the TLB costs is in the figures as well",
            "すべてのメモリをヒュージページにできなかったため、値には TLB のコストも含まれます",
            "모든 메모리를 대용량 페이지로 잡지 못해 값에 TLB 비용도 포함되어 있습니다",
        ],
    ),
    (
        "matrix.vm",
        [
            "Virtual machine{hypervisor}: its nodes and caches may not be those of the hardware, and its neighbours share the memory.",
            "仮想マシン{hypervisor}です: ノードとキャッシュは実機と異なる場合があり、メモリはほかの仮想マシンと共有されています。",
            "가상 머신{hypervisor}입니다: 노드와 캐시가 실제 하드웨어와 다를 수 있고, 메모리를 다른 가상 머신과 공유합니다.",
        ],
    ),
    ("matrix.huge", ["huge pages", "ヒュージページ", "대용량 페이지"]),
    (
        "matrix.small-pages",
        ["4K pages: bound by the TLB as well", "4K ページ: TLB にも制限されます", "4K 페이지: TLB의 제한도 받음"],
    ),
    (
        "matrix.read",
        [
            "Memory reads, GB/s ({threads} thread(s), one a core, {instructions}, {pages})",
            "メモリ読み出し GB/s ({threads} スレッド、コアごとに 1 つ、{instructions}、{pages})",
            "메모리 읽기 GB/s (스레드 {threads}개, 코어당 하나, {instructions}, {pages})",
        ],
    ),
    (
        "matrix.read-threads",
        [
            "Memory reads with all hardware threads, GB/s",
            "全ハードウェアスレッドでのメモリ読み出し GB/s",
            "모든 하드웨어 스레드의 메모리 읽기 GB/s",
        ],
    ),
    (
        "matrix.mixes",
        [
            "Other mixes, own memory, GB/s (R read, W written, NT past the caches)",
            "その他の混合、自ノードのメモリ GB/s (R 読み出し、W 書き込み、NT キャッシュを通さない)",
            "그 밖의 혼합, 자기 노드 메모리 GB/s (R 읽기, W 쓰기, NT 캐시를 거치지 않음)",
        ],
    ),
    ("matrix.program", ["program", "プログラム", "프로그램"]),
    ("matrix.bus", ["on the bus", "バス上", "버스"]),
    (
        "matrix.both",
        [
            "Two nodes read each other's memory, GB/s of both",
            "2 つのノードが互いのメモリを読む場合の合計 GB/s",
            "두 노드가 서로의 메모리를 읽을 때의 합계 GB/s",
        ],
    ),
    ("matrix.latency", ["Latency of a load, ns", "読み出しの遅延 ns", "읽기 지연 ns"]),
    (
        "matrix.loaded",
        [
            "Latency while others read, node {node}",
            "ほかのコアが読んでいる間の遅延、ノード {node}",
            "다른 코어가 읽는 동안의 지연, 노드 {node}",
        ],
    ),
    (
        "matrix.knee",
        [
            "twice the idle latency at {traffic} GB/s",
            "{traffic} GB/s でアイドル時の 2 倍の遅延になります",
            "{traffic} GB/s에서 유휴 지연의 2배가 됩니다",
        ],
    ),
    (
        "matrix.no-knee",
        ["never twice the idle latency", "アイドル時の 2 倍には達しません", "유휴 지연의 2배에 이르지 않습니다"],
    ),
    (
        "matrix.cores",
        [
            "From core to core, ns one way (fastest / median)",
            "コア間、片道 ns (最速 / 中央値)",
            "코어 사이, 편도 ns (최소 / 중앙값)",
        ],
    ),
    ("matrix.pairs", ["pairs", "組", "쌍"]),
    ("matrix.swap", ["swap one line", "1 ラインを交換", "한 라인 교환"]),
    ("matrix.lines", ["a line each", "各自のライン", "각자의 라인"]),
    ("matrix.same-core", ["same core", "同じコア", "같은 코어"]),
    ("matrix.same-cache", ["same last cache", "同じ最終キャッシュ", "같은 마지막 캐시"]),
    ("matrix.same-socket", ["same socket", "同じソケット", "같은 소켓"]),
    ("matrix.other-socket", ["other socket", "別のソケット", "다른 소켓"]),
    ("matrix.node", ["node {node}", "ノード {node}", "노드 {node}"]),
    ("matrix.memory", ["memory {node}", "メモリ {node}", "메모리 {node}"]),
    ("matrix.cpus", ["CPUs of node {node}", "ノード {node} の CPU", "노드 {node}의 CPU"]),
    (
        "matrix.cell.read",
        [
            "reads: CPUs of node {cpus}, memory of node {memory}",
            "読み出し: ノード {cpus} の CPU、ノード {memory} のメモリ",
            "읽기: 노드 {cpus}의 CPU, 노드 {memory}의 메모리",
        ],
    ),
    (
        "matrix.cell.threads",
        [
            "reads: all threads of node {cpus}, memory of node {memory}",
            "読み出し: ノード {cpus} の全スレッド、ノード {memory} のメモリ",
            "읽기: 노드 {cpus}의 모든 스레드, 노드 {memory}의 메모리",
        ],
    ),
    ("matrix.cell.mix", ["{mix}: node {node}", "{mix}: ノード {node}", "{mix}: 노드 {node}"]),
    (
        "matrix.cell.both",
        [
            "reads: nodes {a} and {b}, each other's memory",
            "読み出し: ノード {a} と {b}、互いのメモリ",
            "읽기: 노드 {a}와 {b}, 서로의 메모리",
        ],
    ),
    (
        "matrix.cell.latency",
        [
            "latency: CPU of node {cpus}, memory of node {memory}",
            "遅延: ノード {cpus} の CPU、ノード {memory} のメモリ",
            "지연: 노드 {cpus}의 CPU, 노드 {memory}의 메모리",
        ],
    ),
    (
        "matrix.cell.loaded",
        ["latency under load: node {node}", "負荷時の遅延: ノード {node}", "부하 시 지연: 노드 {node}"],
    ),
    ("matrix.cell.cores", ["CPU {a} to CPU {b}", "CPU {a} から CPU {b}", "CPU {a}에서 CPU {b}"]),
    (
        "links.measure",
        [
            "run `forebay doctor matrix --keep` as root while the host is idle",
            "ホストが空いているときに root で `forebay doctor matrix --keep` を実行してください",
            "호스트가 한가할 때 root 권한으로 `forebay doctor matrix --keep`을 실행하십시오",
        ],
    ),
    (
        "links.measure-recorded",
        [
            "on that host, run `forebay doctor matrix --keep` as root while it is idle, and record it again",
            "そのホストが空いているときに root で `forebay doctor matrix --keep` を実行し、もう一度記録してください",
            "해당 호스트가 한가할 때 root 권한으로 `forebay doctor matrix --keep`을 실행한 뒤 다시 기록하십시오",
        ],
    ),
    (
        "links.resctrl",
        [
            "run `mount -t resctrl resctrl /sys/fs/resctrl` as root, then the doctor again",
            "root で `mount -t resctrl resctrl /sys/fs/resctrl` を実行してから、もう一度診断してください",
            "root 권한으로 `mount -t resctrl resctrl /sys/fs/resctrl`을 실행한 뒤 다시 진단하십시오",
        ],
    ),
    (
        "links.watch",
        [
            "run `forebay doctor watch` as root: uncore counters tell the links apart",
            "root で `forebay doctor watch` を実行してください: アンコアカウンタならリンクごとに分かります",
            "root 권한으로 `forebay doctor watch`를 실행하십시오: 언코어 카운터는 링크를 구분합니다",
        ],
    ),
    (
        "node-link.slow-rated",
        [
            "The link between nodes {a} and {b} carries {read} of {rated} GB/s ({share} %); healthy machines reach {healthy} %. A wrong snoop mode or a link that is down halves whatever crosses it",
            "ノード {a} と {b} の間のリンクは {rated} GB/s のうち {read} GB/s ({share} %) しか出ていません。正常な機械は {healthy} % に達します。スヌープモードの誤りかリンク断で、ノードをまたぐ転送はすべて半分以下になります",
            "노드 {a}와 {b} 사이의 링크는 {rated} GB/s 중 {read} GB/s({share} %)만 전달합니다. 정상 장비는 {healthy} %에 이릅니다. 잘못된 스누프 모드나 끊긴 링크 때문에 노드를 넘는 모든 전송이 절반 이하가 됩니다",
        ],
    ),
    (
        "node-link.slow",
        [
            "CPUs of nodes {a} and {b} read {read} GB/s of each other's memory and {near} GB/s of their own: {share} %; what crosses the link is bound by it",
            "ノード {a} と {b} の CPU は、自ノードのメモリを {near} GB/s で読みますが、互いのメモリは {read} GB/s ({share} %) です。リンクをまたぐ転送はこれに制限されます",
            "노드 {a}와 {b}의 CPU는 자기 메모리를 {near} GB/s로 읽지만 서로의 메모리는 {read} GB/s({share} %)로 읽습니다. 링크를 넘는 전송은 이에 제한됩니다",
        ],
    ),
    (
        "node-link.asymmetric",
        [
            "Between nodes {a} and {b} one direction carries {read} GB/s and the other {other} GB/s: {share} % less",
            "ノード {a} と {b} の間で、片方向は {read} GB/s、逆方向は {other} GB/s です: {share} % の差",
            "노드 {a}와 {b} 사이에서 한 방향은 {read} GB/s, 반대 방향은 {other} GB/s입니다: {share} % 적음",
        ],
    ),
    (
        "node-link.remedy",
        [
            "in the firmware, look at how many links between the sockets are up and how fast; on Xeon E5 v3 and v4 set the snoop mode from Early to Home: writes gained 36 %, reads 25 % on a storage cluster. Then measure again",
            "ファームウェアで、ソケット間リンクの数と速度を確認してください。Xeon E5 v3/v4 ではスヌープモードを Early から Home に変更します (あるストレージクラスタでは書き込み 36 %、読み出し 25 % 向上)。その後もう一度測定してください",
            "펌웨어에서 소켓 사이 링크의 개수와 속도를 확인하십시오. Xeon E5 v3/v4에서는 스누프 모드를 Early에서 Home으로 바꾸십시오 (한 스토리지 클러스터에서 쓰기 36 %, 읽기 25 % 향상). 그런 다음 다시 측정하십시오",
        ],
    ),
    (
        "node-link.fine-rated",
        [
            "link between nodes {a} and {b}: {read} of {rated} GB/s ({share} %)",
            "ノード {a} と {b} の間のリンク: {rated} GB/s のうち {read} GB/s ({share} %)",
            "노드 {a}와 {b} 사이의 링크: {rated} GB/s 중 {read} GB/s ({share} %)",
        ],
    ),
    (
        "node-link.fine",
        [
            "link between nodes {a} and {b}: {read} GB/s, {share} % of what their own memory gives",
            "ノード {a} と {b} の間のリンク: {read} GB/s、自ノードのメモリの {share} %",
            "노드 {a}와 {b} 사이의 링크: {read} GB/s, 자기 메모리의 {share} %",
        ],
    ),
    (
        "memory-bandwidth.full",
        [
            "Memory of node {node} carries {used} of at most {most} GB/s ({share} %): what runs there waits for memory",
            "ノード {node} のメモリは最大 {most} GB/s のうち {used} GB/s ({share} %) を運んでいます: このノードの処理はメモリ待ちです",
            "노드 {node}의 메모리는 최대 {most} GB/s 중 {used} GB/s({share} %)를 전달합니다: 이 노드의 작업은 메모리를 기다립니다",
        ],
    ),
    (
        "memory-bandwidth.remedy",
        [
            "move work to another node, or copy less: sendfile, O_DIRECT and RDMA spare up to five passes of each byte",
            "処理を別のノードへ移すか、コピーを減らしてください: sendfile、O_DIRECT、RDMA は 1 バイトあたり最大 5 回の通過を省きます",
            "작업을 다른 노드로 옮기거나 복사를 줄이십시오: sendfile, O_DIRECT, RDMA는 바이트당 최대 5번의 통과를 줄입니다",
        ],
    ),
    (
        "memory-bandwidth.free",
        [
            "memory bandwidth: {used} of {most} GB/s at node {node} ({share} %), {times} times headroom (CPUs' share; devices not counted)",
            "メモリ帯域: ノード {node} で {most} GB/s のうち {used} GB/s ({share} %)、{times} 倍の余裕 (CPU の分のみ、デバイスは含みません)",
            "메모리 대역폭: 노드 {node}에서 {most} GB/s 중 {used} GB/s ({share} %), {times}배 여유 (CPU 몫만, 장치 제외)",
        ],
    ),
    (
        "memory-bandwidth.fine",
        [
            "memory bandwidth: {used} of {most} GB/s at node {node} ({share} %; CPUs' share, devices not counted)",
            "メモリ帯域: ノード {node} で {most} GB/s のうち {used} GB/s ({share} %、CPU の分のみ、デバイスは含みません)",
            "메모리 대역폭: 노드 {node}에서 {most} GB/s 중 {used} GB/s ({share} %, CPU 몫만, 장치 제외)",
        ],
    ),
    (
        "node-link-use.full",
        [
            "CPUs of node {a} move {used} GB/s to and from memory of node {b}, {share} % of the {most} GB/s that the link was measured at: it queues",
            "ノード {a} の CPU はノード {b} のメモリと {used} GB/s をやり取りしています。リンクの実測 {most} GB/s の {share} % で、待ちが生じます",
            "노드 {a}의 CPU가 노드 {b}의 메모리와 {used} GB/s를 주고받습니다. 측정된 링크 {most} GB/s의 {share} %로, 대기가 생깁니다",
        ],
    ),
    (
        "node-link-use.remedy",
        [
            "bring threads, their memory and the interrupts of their devices to one node (checks 8, 9, 12 to 14)",
            "スレッド、そのメモリ、デバイスの割り込みを 1 つのノードに集めてください (チェック 8、9、12 から 14)",
            "스레드와 그 메모리, 장치 인터럽트를 한 노드로 모으십시오 (검사 8, 9, 12~14)",
        ],
    ),
    (
        "node-link-use.fine",
        [
            "link between nodes: CPUs of node {a} move {used} of {most} GB/s with memory of node {b} ({share} %)",
            "ノード間リンク: ノード {a} の CPU とノード {b} のメモリの間は {most} GB/s のうち {used} GB/s ({share} %)",
            "노드 사이 링크: 노드 {a}의 CPU와 노드 {b}의 메모리 사이는 {most} GB/s 중 {used} GB/s ({share} %)",
        ],
    ),
];
