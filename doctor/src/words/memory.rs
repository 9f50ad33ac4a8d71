//! Words of the checks of memory and the links between nodes.

use super::Row;

/// Sentences of the checks of memory and links, by their keys.
pub const ROWS: &[Row] = &[
    (
        "memory.tables-near",
        [
            "The firmware says that all {nodes} NUMA nodes are equally near (distance 10): its table is useless, and Linux places by it.",
            "ファームウェアによれば {nodes} 個の NUMA ノードはすべて同じ近さ（距離 10）です。この表は役に立たず、Linux はそれに従って配置します。",
            "펌웨어에 따르면 NUMA 노드 {nodes}개가 모두 똑같이 가깝습니다(거리 10). 이 표는 쓸모가 없지만 Linux는 이에 따라 배치합니다.",
        ],
    ),
    (
        "memory.tables-shared",
        [
            "The firmware gives one CPU to several of {nodes} NUMA nodes: its table is useless, and Linux places by it.",
            "ファームウェアは 1 つの CPU を {nodes} 個の NUMA ノードのうち複数に割り当てています。この表は役に立たず、Linux はそれに従って配置します。",
            "펌웨어가 CPU 하나를 NUMA 노드 {nodes}개 중 여럿에 배정했습니다. 이 표는 쓸모가 없지만 Linux는 이에 따라 배치합니다.",
        ],
    ),
    (
        "memory.tables-remedy",
        [
            "measure instead of believing it; newer firmware, or a kernel started without numa=fake, may have the true table",
            "表を信じずに測定してください。新しいファームウェア、または numa=fake なしで起動したカーネルなら正しい表が得られることがあります",
            "표를 믿지 말고 측정하십시오. 새 펌웨어나 numa=fake 없이 시작한 커널에서는 올바른 표를 얻을 수 있습니다",
        ],
    ),
    (
        "memory.tables-fine",
        [
            "NUMA tables: {nodes} nodes, the farthest {far} times as far as the own one.",
            "NUMA の表：{nodes} ノード、最も遠いノードの距離は自ノードの {far} 倍です。",
            "NUMA 표: 노드 {nodes}개, 가장 먼 노드의 거리는 자기 노드의 {far}배입니다.",
        ],
    ),
    (
        "memory.channels",
        [
            "{filled} of {all} memory channels have a module: {is} of {could_be} at most.",
            "{all} 本のメモリチャネルのうちモジュールがあるのは {filled} 本です：最大 {could_be} のうち {is}。",
            "메모리 채널 {all}개 중 {filled}개에만 모듈이 있습니다: 최대 {could_be} 중 {is}.",
        ],
    ),
    (
        "memory.channels-only",
        [
            "{filled} of {all} memory channels have a module; bandwidth grows with each.",
            "{all} 本のメモリチャネルのうちモジュールがあるのは {filled} 本です。帯域は埋めた本数に比例します。",
            "메모리 채널 {all}개 중 {filled}개에만 모듈이 있습니다. 대역폭은 채운 수에 비례합니다.",
        ],
    ),
    (
        "memory.one-module",
        [
            "One memory module for each processor, {filled} in {slots} slots: it has one channel, {is}; a second one beside it, at another channel, makes it {could_be}.",
            "メモリスロット {slots} 個のうち、モジュールはプロセッサごとに 1 枚（計 {filled} 枚）です。1 チャネル分の {is} にとどまります。別のチャネルにもう 1 枚挿すと {could_be} になります。",
            "메모리 슬롯 {slots}개 중 모듈은 프로세서마다 1개(모두 {filled}개)입니다. 채널 하나의 {is}에 그치며, 다른 채널에 하나를 더 꽂으면 {could_be}가 됩니다.",
        ],
    ),
    (
        "memory.one-module-only",
        [
            "One memory module for each processor, {filled} in {slots} slots: it has one channel; a second one beside it, at another channel, doubles the bandwidth.",
            "メモリモジュールはプロセッサごとに 1 枚（スロット {slots} 個に計 {filled} 枚）で、使われるのは 1 チャネルだけです。別のチャネルにもう 1 枚挿すと帯域は 2 倍になります。",
            "메모리 모듈은 프로세서마다 1개(슬롯 {slots}개에 모두 {filled}개)라서 채널 하나만 쓰입니다. 다른 채널에 하나를 더 꽂으면 대역폭이 두 배가 됩니다.",
        ],
    ),
    (
        "memory.channels-remedy",
        [
            "spread the modules, or add some, so that each channel of each processor has one of the same size",
            "各プロセッサのすべてのチャネルに同じ容量のモジュールが入るように、分散または追加します",
            "각 프로세서의 모든 채널에 같은 용량의 모듈이 들어가도록 나누거나 추가하십시오",
        ],
    ),
    (
        "memory.slow",
        [
            "{modules} memory modules ({kind}) run at {is} MT/s; they are made for {could_be}: {loss} of their bandwidth is not used.",
            "メモリモジュール {modules} 枚（{kind}）は {is} MT/s で動作していますが、定格は {could_be} です：帯域の {loss} が使われていません。",
            "메모리 모듈 {modules}개({kind})가 {is} MT/s로 동작하지만 정격은 {could_be}입니다: 대역폭의 {loss}가 쓰이지 않습니다.",
        ],
    ),
    (
        "memory.slow-remedy",
        [
            "often the processor's own limit, or that of two or three modules on a channel: its data sheet tells; else the firmware's setting of memory speed",
            "多くはプロセッサ自体、または 1 チャネルに 2～3 枚挿した場合の上限です（データシート参照）。そうでなければファームウェアのメモリ速度設定を確認します",
            "대개 프로세서 자체의 한계이거나 채널당 모듈 2~3개일 때의 한계입니다(데이터시트 참조). 아니면 펌웨어의 메모리 속도 설정을 확인하십시오",
        ],
    ),
    (
        "memory.unequal",
        [
            "Node {small} has {is} of memory, node {large} {could_be}: what does not fit into the small one is far from its CPUs.",
            "ノード {small} のメモリは {is}、ノード {large} は {could_be} です。小さい側に収まらない分はその CPU から遠くなります。",
            "노드 {small}의 메모리는 {is}, 노드 {large}는 {could_be}입니다. 작은 쪽에 들어가지 않는 것은 그 CPU에서 멀어집니다.",
        ],
    ),
    (
        "memory.unequal-remedy",
        [
            "give both the same modules, or let the server that needs most memory be at the large one",
            "両方に同じモジュールを入れるか、メモリを最も使うサーバーを大きい側に置きます",
            "양쪽에 같은 모듈을 넣거나, 메모리를 가장 많이 쓰는 서버를 큰 쪽에 두십시오",
        ],
    ),
    (
        "memory.modules-fine",
        [
            "Memory modules: {modules} of {kind}, {speed} MT/s, as fast as they are made.",
            "メモリモジュール：{kind} {modules} 枚、{speed} MT/s（定格どおり）。",
            "메모리 모듈: {kind} {modules}개, {speed} MT/s(정격대로).",
        ],
    ),
    (
        "memory.channels-fine",
        [
            "Memory: {modules} modules of {kind} at {speed} MT/s, enough for all {channels} channels of each processor: {peak} each at most.",
            "メモリ：{kind} {modules} 枚、{speed} MT/s。各プロセッサの {channels} チャネルすべてに足ります：それぞれ最大 {peak}。",
            "메모리: {kind} {modules}개, {speed} MT/s. 각 프로세서의 채널 {channels}개를 모두 채울 수 있습니다: 각각 최대 {peak}.",
        ],
    ),
    (
        "memory.zone-reclaim",
        [
            "vm.zone_reclaim_mode is {value}: a node drops its page cache before it takes memory of another, so that files are cached in one node only.",
            "vm.zone_reclaim_mode が {value} です。他ノードのメモリを使う前に自ノードのページキャッシュを捨てるため、ファイルのキャッシュが 1 ノードに限られます。",
            "vm.zone_reclaim_mode가 {value}입니다. 다른 노드의 메모리를 쓰기 전에 자기 노드의 페이지 캐시를 버리므로 파일 캐시가 한 노드로 제한됩니다.",
        ],
    ),
    (
        "memory.balancing",
        [
            "kernel.numa_balancing is {value} while {server} is held to one node: page faults that look for a better place, and find none.",
            "{server} は 1 つのノードに固定されていますが、kernel.numa_balancing が {value} です。より良い配置を探すページフォールトが無駄に発生します。",
            "{server}은(는) 한 노드에 고정되어 있지만 kernel.numa_balancing이 {value}입니다. 더 나은 위치를 찾는 페이지 폴트가 헛되이 발생합니다.",
        ],
    ),
    (
        "memory.defrag",
        [
            "Huge pages are made room for at each page fault ({value}): a fault may wait milliseconds while memory is moved.",
            "ページフォールトのたびにヒュージページ用の領域を確保します（{value}）。メモリの移動でフォールトが数ミリ秒待たされることがあります。",
            "페이지 폴트마다 휴즈 페이지 공간을 마련합니다({value}). 메모리를 옮기느라 폴트가 수 밀리초 기다릴 수 있습니다.",
        ],
    ),
    ("memory.setting-remedy", ["set it to {value}", "{value} に設定します", "{value}(으)로 설정합니다"]),
    (
        "memory.policy-fine",
        [
            "Memory policy: zone_reclaim_mode {reclaim}, numa_balancing {balancing}, defragmentation {defrag}.",
            "メモリポリシー：zone_reclaim_mode {reclaim}、numa_balancing {balancing}、デフラグ {defrag}。",
            "메모리 정책: zone_reclaim_mode {reclaim}, numa_balancing {balancing}, 조각 모음 {defrag}.",
        ],
    ),
];
