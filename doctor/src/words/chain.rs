//! Words of the chain of a data path.

use super::Row;

/// Sentences of the chain of a data path, by their keys.
pub const ROWS: &[Row] = &[
    (
        "path.title",
        [
            "path  {from} -> {to}, copies by CPUs: {copies}",
            "経路  {from} -> {to}、CPU によるコピー {copies} 回",
            "경로  {from} -> {to}, CPU 복사 {copies}회",
        ],
    ),
    ("path.capacity", ["capacity", "容量", "용량"]),
    ("path.passes", ["passes", "通過回数", "통과 횟수"]),
    ("path.hop-bound", ["path at most", "経路の上限", "경로 상한"]),
    ("path.used", ["used", "使用率", "사용률"]),
    ("path.mark", ["BOUND", "ボトルネック", "병목"]),
    ("path.mark-known", ["lowest known", "既知の最小", "알려진 최소"]),
    (
        "path.bound-known",
        [
            "at most {bound}, the lowest that is known: {hops}. What is not known may carry less",
            "上限は {bound} 以下。分かっている中での最小: {hops}。不明なものはさらに少ない可能性があります",
            "상한은 {bound} 이하. 알려진 것 중 최소: {hops}. 알 수 없는 것은 더 적을 수 있습니다",
        ],
    ),
    (
        "path.unknown",
        [
            "No capacity on this path is known, and so no bound.",
            "この経路で容量が分かるものがないため、上限は分かりません。",
            "이 경로에서 용량을 아는 것이 없어 상한을 알 수 없습니다.",
        ],
    ),
    (
        "path.bound",
        ["at most {bound}, bound by: {hops}", "上限は {bound}。ボトルネック: {hops}", "상한은 {bound}. 병목: {hops}"],
    ),
    (
        "path.physics",
        [
            "{measured} is {share} % of the {bound} that is possible here: nothing is left to tune. Bound by: {hops}",
            "{measured} は可能な {bound} の {share} % です: これ以上の調整の余地はありません。ボトルネック: {hops}",
            "{measured}는 가능한 {bound}의 {share} %입니다: 더 조정할 것이 없습니다. 병목: {hops}",
        ],
    ),
    (
        "path.reached",
        [
            "{measured} is {share} % of {bound}, what its own overhead leaves. Bound by: {hops}",
            "{measured} は {bound} の {share} % で、残りはリンク自身のオーバーヘッドです。ボトルネック: {hops}",
            "{measured}는 {bound}의 {share} %이며, 나머지는 링크 자체의 오버헤드입니다. 병목: {hops}",
        ],
    ),
    (
        "path.not-the-chain",
        [
            "{measured} is only {share} % of {bound} ({hops}): what bounds is not in this list. Look at single busy CPUs, at how many requests, connections or subflows are under way, and at the devices themselves",
            "{measured} は {bound} ({hops}) の {share} % にすぎません: ボトルネックはこの一覧の外にあります。特定の CPU だけが忙しくないか、同時に進む要求・接続・サブフローの数、デバイス自体を確認してください",
            "{measured}는 {bound}({hops})의 {share} %에 불과합니다: 병목은 이 목록에 없습니다. 특정 CPU만 바쁜지, 동시에 진행되는 요청·연결·서브플로 수, 장치 자체를 확인하십시오",
        ],
    ),
    (
        "path.not-known-below",
        [
            "{measured} is only {share} % of {bound}, the lowest that is known ({hops}): what bounds is one of those that are not known, or something beside this list, such as a single busy CPU, too few requests, connections or subflows under way, or the devices themselves",
            "{measured} は、分かっている中で最小の {bound} ({hops}) の {share} % にすぎません: ボトルネックは容量が不明なもののどれかか、この一覧にないもの (特定の CPU だけが忙しい、同時に進む要求・接続・サブフローが少ない、デバイス自体) です",
            "{measured}는 알려진 것 중 최소인 {bound}({hops})의 {share} %에 불과합니다: 병목은 용량을 알 수 없는 것 중 하나이거나 이 목록에 없는 것(특정 CPU만 바쁨, 동시에 진행되는 요청·연결·서브플로가 적음, 장치 자체)입니다",
        ],
    ),
    (
        "path.near",
        [
            "{measured} is {share} % of {bound} ({hops}): near what this leaves after its own overhead, but below it. Whether this bounds or something beside it, the figure alone does not tell: measure longer, with more requests under way, and look at single busy CPUs",
            "{measured} は {bound} ({hops}) の {share} % です: オーバーヘッドを引いた残りに近いものの、それを下回っています。これがボトルネックなのか、ほかにあるのかは、この値だけでは分かりません。同時に進む要求を増やして長めに測定し、特定の CPU だけが忙しくないか確認してください",
            "{measured}는 {bound}({hops})의 {share} %입니다: 자체 오버헤드를 뺀 값에 가깝지만 그보다 낮습니다. 이것이 병목인지 다른 데 있는지는 이 값만으로 알 수 없습니다. 동시에 진행되는 요청을 늘려 더 오래 측정하고 특정 CPU만 바쁘지 않은지 확인하십시오",
        ],
    ),
    (
        "path.equal",
        [
            "these are about equal, nearer to each other than the figures are exact: any of them may bound, and more needs all of them cured",
            "これらはほぼ等しく、差は計算の誤差より小さいため、どれもボトルネックになりえます。これ以上速くするには、すべてを解消する必要があります",
            "이들은 거의 같고 차이가 계산 오차보다 작으므로 어느 것이든 병목일 수 있습니다. 더 빠르게 하려면 모두 해결해야 합니다",
        ],
    ),
    (
        "path.more",
        [
            "{measured} is {share} % of {bound}, more than {hops} can carry: the bytes take another way, or are fewer there (a cache, compression)",
            "{measured} は {bound} の {share} % で、{hops} が運べる量を超えています: データは別の経路を通ったか、そこでは少なくなっています (キャッシュ、圧縮)",
            "{measured}는 {bound}의 {share} %로 {hops}이(가) 전달할 수 있는 양을 넘습니다: 바이트가 다른 길로 가거나 그곳에서는 더 적습니다 (캐시, 압축)",
        ],
    ),
    (
        "path.predicted",
        [
            "without that bound: {predicted} predicted (next bound: {hop}, {next})",
            "このボトルネックがなければ: 予測 {predicted} (次のボトルネック: {hop}、{next})",
            "이 병목이 없다면: 예측 {predicted} (다음 병목: {hop}, {next})",
        ],
    ),
    (
        "path.next",
        [
            "without that bound: at most {next}, bound by {hop}",
            "このボトルネックがなければ: 上限 {next}、{hop} による",
            "이 병목이 없다면: 상한 {next}, {hop}에 의함",
        ],
    ),
    ("path.times", ["{hop} ({times}x headroom)", "{hop} ({times} 倍の余裕)", "{hop} ({times}배 여유)"]),
    ("path.free", ["not the bound: {hops}", "ボトルネックではない: {hops}", "병목이 아님: {hops}"]),
    ("path.not-known", ["not known: {hops}", "不明: {hops}", "알 수 없음: {hops}"]),
    (
        "path.place",
        [
            "with threads and their memory on node {node}: {then} instead of {now} crossings between nodes for each byte, and at most {bound}",
            "スレッドとメモリをノード {node} に置くと: 1 バイトあたりのノード間通過は {now} 回から {then} 回になり、上限は {bound}",
            "스레드와 메모리를 노드 {node}에 두면: 바이트당 노드 사이 통과가 {now}회에서 {then}회가 되고 상한은 {bound}",
        ],
    ),
    (
        "path.dirty",
        [
            "up to {dirty} GB may wait to be written to {disks} (vm.dirty_ratio, vm.dirty_bytes): {seconds} s at the least, as long as its link is the bound",
            "{disks} への書き込み待ちは最大 {dirty} GB (vm.dirty_ratio、vm.dirty_bytes): リンクが上限でも少なくとも {seconds} 秒かかります",
            "{disks}에 쓰기를 기다리는 데이터는 최대 {dirty} GB(vm.dirty_ratio, vm.dirty_bytes): 링크가 상한이어도 최소 {seconds}초 걸립니다",
        ],
    ),
    (
        "hop.nic",
        [
            "{name}: Ethernet {speed}, MTU {mtu}, TCP payload",
            "{name}: イーサネット {speed}、MTU {mtu}、TCP ペイロード",
            "{name}: 이더넷 {speed}, MTU {mtu}, TCP 페이로드",
        ],
    ),
    (
        "hop.ipoib",
        [
            "{name}: IP over InfiniBand {rate}, MTU {mtu}, TCP payload",
            "{name}: IP over InfiniBand {rate}、MTU {mtu}、TCP ペイロード",
            "{name}: IP over InfiniBand {rate}, MTU {mtu}, TCP 페이로드",
        ],
    ),
    ("hop.nic-unknown", ["{name}: no speed is told", "{name}: 速度が示されていません", "{name}: 속도가 표시되지 않음"]),
    ("hop.rdma", ["{name}: {rate}", "{name}: {rate}", "{name}: {rate}"]),
    ("hop.disk", ["{name}: the disk itself", "{name}: ディスク自体", "{name}: 디스크 자체"]),
    ("hop.sata", ["{name}: SATA {speed} Gb/s", "{name}: SATA {speed} Gb/s", "{name}: SATA {speed} Gb/s"]),
    (
        "hop.sas",
        ["{name}: SAS {speed} Gb/s x{lanes}", "{name}: SAS {speed} Gb/s x{lanes}", "{name}: SAS {speed} Gb/s x{lanes}"],
    ),
    ("hop.usb", ["{name}: USB {speed} Mb/s", "{name}: USB {speed} Mb/s", "{name}: USB {speed} Mb/s"]),
    (
        "hop.slot",
        [
            "slot of {address}: PCIe {speed} GT/s x{lanes}, payload {payload} B",
            "{address} のスロット: PCIe {speed} GT/s x{lanes}、ペイロード {payload} B",
            "{address}의 슬롯: PCIe {speed} GT/s x{lanes}, 페이로드 {payload} B",
        ],
    ),
    (
        "hop.slot-assumed",
        [
            "slot of {address}: PCIe {speed} GT/s x{lanes}, payload at least {payload} B (root sees it)",
            "{address} のスロット: PCIe {speed} GT/s x{lanes}、ペイロード {payload} B 以上 (root なら確認できます)",
            "{address}의 슬롯: PCIe {speed} GT/s x{lanes}, 페이로드 {payload} B 이상 (root 권한으로 확인 가능)",
        ],
    ),
    ("hop.ram", ["RAM of node {node}", "ノード {node} の RAM", "노드 {node}의 RAM"]),
    (
        "hop.ram-modules",
        [
            "RAM of node {node}: {channels} channels at {speed} MT/s, of which 80 % can be reached",
            "ノード {node} の RAM: {speed} MT/s x {channels} チャネル、到達可能なのは 80 %",
            "노드 {node}의 RAM: {speed} MT/s x {channels}채널, 도달 가능한 것은 80 %",
        ],
    ),
    (
        "hop.link",
        [
            "link from node {from} to node {to}",
            "ノード {from} からノード {to} へのリンク",
            "노드 {from}에서 노드 {to}로 가는 링크",
        ],
    ),
    (
        "hop.cure-mtu",
        [
            "MTU {mtu}, where every host and switch of the subnet can do it, adds {gain} %; more needs a faster or a second line",
            "サブネット内のすべてのホストとスイッチが対応していれば、MTU {mtu} で {gain} % 増えます。それ以上は速い回線か 2 本目が必要です",
            "서브넷의 모든 호스트와 스위치가 지원하면 MTU {mtu}로 {gain} % 늘어납니다. 그 이상은 더 빠른 회선이나 두 번째 회선이 필요합니다",
        ],
    ),
    (
        "hop.cure-line",
        [
            "only a faster line or a second one carries more",
            "これ以上は、より速い回線か 2 本目の回線が必要です",
            "더 빠른 회선이나 두 번째 회선만이 더 전달합니다",
        ],
    ),
    (
        "hop.cure-ipoib",
        [
            "RDMA instead of IP where both ends can; more needs a faster line or a second one",
            "両端が対応していれば、IP の代わりに RDMA を使います。それ以上は、より速い回線か 2 本目の回線が必要です",
            "양 끝이 지원하면 IP 대신 RDMA를 사용합니다. 그 이상은 더 빠른 회선이나 두 번째 회선이 필요합니다",
        ],
    ),
    (
        "hop.cure-slot",
        [
            "no software cures it: a slot with more or faster lanes, or a second adapter in a slot of its own; a second port in the same slot adds nothing",
            "ソフトウェアでは解決できません: レーン数の多い、または速いスロットに移すか、別のスロットに 2 枚目を追加してください。同じスロットの 2 つ目のポートでは増えません",
            "소프트웨어로는 해결할 수 없습니다: 레인이 더 많거나 빠른 슬롯으로 옮기거나 다른 슬롯에 두 번째 어댑터를 추가하십시오. 같은 슬롯의 두 번째 포트는 도움이 되지 않습니다",
        ],
    ),
    (
        "hop.cure-ram",
        [
            "fewer copies (sendfile, O_DIRECT, RDMA), or a node with less to do",
            "コピーを減らす (sendfile、O_DIRECT、RDMA) か、空いているノードを使ってください",
            "복사를 줄이거나(sendfile, O_DIRECT, RDMA) 덜 바쁜 노드를 사용하십시오",
        ],
    ),
    (
        "hop.cure-link",
        [
            "bring threads, memory and interrupts to the node of the devices",
            "スレッド、メモリ、割り込みをデバイスのあるノードに集めてください",
            "스레드, 메모리, 인터럽트를 장치가 있는 노드로 모으십시오",
        ],
    ),
];
