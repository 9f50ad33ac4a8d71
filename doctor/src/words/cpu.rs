//! Words of the checks of CPUs.

use super::Row;

/// Sentences of the checks of CPUs, by their keys.
pub const ROWS: &[Row] = &[
    (
        "cpu.clock-fine",
        [
            "CPU clock: up to {clock} by governor {governor}, not held down in any of {policies} clock domains.",
            "CPU クロック：ガバナー {governor} で最大 {clock}。{policies} 個のクロックドメインのいずれも抑えられていません。",
            "CPU 클럭: 거버너 {governor}로 최대 {clock}. 클럭 도메인 {policies}개 모두 제한되지 않았습니다.",
        ],
    ),
    (
        "cpu.powersave",
        [
            "Governor powersave holds {policies} clock domains at {clock} of {max}, whatever the load.",
            "ガバナー powersave が {policies} 個のクロックドメインを、負荷にかかわらず {max} のうち {clock} に固定しています。",
            "거버너 powersave가 클럭 도메인 {policies}개를 부하와 관계없이 {max} 중 {clock}에 묶어 둡니다.",
        ],
    ),
    (
        "cpu.powersave-memory",
        [
            "Governor powersave holds {policies} clock domains at {clock} of {max}; in this CPU the memory controller has the cores' clock, so memory bandwidth is about halved too.",
            "ガバナー powersave が {policies} 個のクロックドメインを {max} のうち {clock} に固定しています。この CPU ではメモリコントローラーもコアのクロックで動くため、メモリ帯域もおよそ半分になります。",
            "거버너 powersave가 클럭 도메인 {policies}개를 {max} 중 {clock}에 묶어 둡니다. 이 CPU는 메모리 컨트롤러도 코어 클럭으로 동작하므로 메모리 대역폭도 거의 절반이 됩니다.",
        ],
    ),
    (
        "cpu.governor-remedy",
        ["set the governor to performance", "ガバナーを performance にします", "거버너를 performance로 바꿉니다"],
    ),
    (
        "cpu.preference",
        [
            "The CPU is told to prefer saving ({preference}) in {policies} clock domains: it raises its clock late when load comes.",
            "{policies} 個のクロックドメインで節電優先（{preference}）が指定されています。負荷が来てもクロックの上昇が遅れます。",
            "클럭 도메인 {policies}개에 절전 우선({preference})이 지정되어 있습니다. 부하가 와도 클럭이 늦게 올라갑니다.",
        ],
    ),
    (
        "cpu.preference-remedy",
        ["set the preference to performance", "優先設定を performance にします", "우선 설정을 performance로 바꿉니다"],
    ),
    (
        "cpu.capped",
        [
            "The clock of {policies} clock domains is capped at {clock}; the CPU can do {max}.",
            "{policies} 個のクロックドメインの上限が {clock} に抑えられています。CPU は {max} まで可能です。",
            "클럭 도메인 {policies}개의 상한이 {clock}(으)로 낮춰져 있습니다. CPU는 {max}까지 가능합니다.",
        ],
    ),
    ("cpu.capped-remedy", ["lift the cap", "上限を元に戻します", "상한을 되돌립니다"]),
    (
        "cpu.turbo",
        [
            "Turbo is switched off: single busy cores stay at the base clock.",
            "ターボが無効です。忙しいコアも定格クロックのままです。",
            "터보가 꺼져 있습니다. 바쁜 코어도 기본 클럭에 머뭅니다.",
        ],
    ),
    ("cpu.turbo-remedy", ["switch it on", "有効にします", "켭니다"]),
    (
        "cpu.uncore",
        [
            "The uncore (last cache, memory controller, socket link) is capped at {clock}; it can do {max}.",
            "アンコア（最終キャッシュ、メモリコントローラー、ソケット間リンク）の上限が {clock} に抑えられています。{max} まで可能です。",
            "언코어(최종 캐시, 메모리 컨트롤러, 소켓 링크)의 상한이 {clock}(으)로 낮춰져 있습니다. {max}까지 가능합니다.",
        ],
    ),
    ("cpu.uncore-remedy", ["lift the uncore's cap", "アンコアの上限を元に戻します", "언코어 상한을 되돌립니다"]),
    (
        "cpu.sleep",
        [
            "{cpus} CPUs that take interrupts of fast devices fall into {state}, and need {latency} µs to wake: the first request after a pause waits so long.",
            "高速デバイスの割り込みを受ける CPU {cpus} 個が {state} に入り、復帰に {latency} µs かかります。間が空いた後の最初の要求はその分待ちます。",
            "빠른 장치의 인터럽트를 받는 CPU {cpus}개가 {state}에 들어가고, 깨어나는 데 {latency} µs가 걸립니다. 쉬었다 오는 첫 요청이 그만큼 기다립니다.",
        ],
    ),
    (
        "cpu.sleep-remedy",
        [
            "where the slowest requests matter more than power: forbid {state} on these CPUs",
            "消費電力より最も遅い要求の短縮が重要なら、これらの CPU で {state} を禁止します",
            "전력보다 가장 느린 요청이 중요하다면 이 CPU들에서 {state}을(를) 금지합니다",
        ],
    ),
    (
        "cpu.sleep-fine",
        [
            "CPU sleep: the deepest state in use, {state}, takes {latency} µs to leave.",
            "CPU スリープ：使われている最も深い状態 {state} からの復帰は {latency} µs です。",
            "CPU 절전: 쓰이는 가장 깊은 상태 {state}에서 깨어나는 데 {latency} µs입니다.",
        ],
    ),
    (
        "cpu.throttled",
        [
            "CPUs were slowed down for heat {times} times within {seconds} s.",
            "{seconds} 秒間に CPU が熱のため {times} 回減速されました。",
            "{seconds}초 동안 CPU가 열 때문에 {times}번 느려졌습니다.",
        ],
    ),
    (
        "cpu.not-throttled",
        [
            "Heat: no CPU is being slowed down now ({times} times since boot).",
            "熱：現在減速されている CPU はありません（起動以降 {times} 回）。",
            "열: 지금 느려지고 있는 CPU는 없습니다(부팅 이후 {times}번).",
        ],
    ),
    (
        "cpu.drive-hot",
        [
            "{drive} is at {now} °C, and its own warning temperature is {limit} °C: it slows itself down.",
            "{drive} は {now} °C で、自身の警告温度 {limit} °C に達しています。自ら減速します。",
            "{drive}은(는) {now} °C이며 자체 경고 온도는 {limit} °C입니다. 스스로 느려집니다.",
        ],
    ),
    (
        "cpu.drive-nearly-hot",
        [
            "{drive} is at {now} °C, near its own warning temperature of {limit} °C: under load it will slow itself down.",
            "{drive} は {now} °C で、自身の警告温度 {limit} °C に近づいています。負荷がかかると自ら減速します。",
            "{drive}은(는) {now} °C로 자체 경고 온도 {limit} °C에 가깝습니다. 부하가 걸리면 스스로 느려집니다.",
        ],
    ),
    (
        "cpu.drive-cool",
        [
            "Heat: {drive} is nearest to its limit with {now} of {limit} °C, and no CPU is being slowed down.",
            "熱：限界に最も近い {drive} でも {limit} °C に対して {now} °C で、減速されている CPU はありません。",
            "열: 한계에 가장 가까운 {drive}도 {limit} °C 중 {now} °C이며, 느려지고 있는 CPU는 없습니다.",
        ],
    ),
    (
        "cpu.air-remedy",
        [
            "look at fans, dust, the airflow over the drive and the room's temperature",
            "ファン、ほこり、ドライブへの風の流れ、室温を確認してください",
            "팬, 먼지, 드라이브로 가는 바람, 실내 온도를 확인하십시오",
        ],
    ),
    (
        "cpu.second-look",
        [
            "what grows needs two looks: record the host with forebay doctor record, which takes both",
            "増加を見るには 2 回の観測が必要です。両方を取る forebay doctor record で記録してください",
            "늘어나는 것을 보려면 두 번 보아야 합니다. 둘 다 담는 forebay doctor record로 기록하십시오",
        ],
    ),
    (
        "cpu.no-single-core",
        [
            "Load: CPU {cpu} is the busiest with {busy}, the others have {others} (median); no single core bounds by interrupts.",
            "負荷：最も忙しい CPU {cpu} は {busy}、他は {others}（中央値）です。割り込みで 1 つのコアが限界になってはいません。",
            "부하: 가장 바쁜 CPU {cpu}은(는) {busy}, 나머지는 {others}(중앙값)입니다. 인터럽트로 한 코어가 한계에 이르지는 않았습니다.",
        ],
    ),
    (
        "cpu.all-full",
        [
            "All {cpus} CPUs are busy: {busy} (median) without what gives way (nice); whoever serves data waits for its turn.",
            "CPU {cpus} 個すべてが使用中です：nice を除いて {busy}（中央値）。データを提供する側は順番を待ちます。",
            "CPU {cpus}개가 모두 바쁩니다: nice를 빼고 {busy}(중앙값). 데이터를 제공하는 쪽은 차례를 기다립니다.",
        ],
    ),
    (
        "cpu.all-full-remedy",
        [
            "see who works, and let it give way (nice) or run elsewhere; it was looked at for a moment only",
            "何が CPU を使っているか確認し、優先度を下げる（nice）か他へ移してください。観測は一瞬だけです",
            "무엇이 일하는지 보고 양보하게 하거나(nice) 다른 곳에서 실행하십시오. 잠깐만 관찰한 결과입니다",
        ],
    ),
    (
        "cpu.full-by-interrupts",
        [
            "CPU {cpu} is {busy} busy, {interrupts} with interrupts, while the others have {others} (median): one core does the work of the device.",
            "CPU {cpu} の使用率は {busy}（割り込み {interrupts}）、他は {others}（中央値）です。1 つのコアだけがデバイスの処理をしています。",
            "CPU {cpu}의 사용률은 {busy}(인터럽트 {interrupts}), 나머지는 {others}(중앙값)입니다. 한 코어가 장치의 일을 다 하고 있습니다.",
        ],
    ),
    (
        "cpu.full-by-server",
        [
            "CPU {cpu} is {busy} busy ({interrupts} with interrupts) by a thread of {server}, while the others have {others} (median): one thread bounds it.",
            "CPU {cpu} は {server} のスレッドで使用率 {busy}（割り込み {interrupts}）、他は {others}（中央値）です。1 つのスレッドが限界になっています。",
            "CPU {cpu}은(는) {server}의 스레드로 사용률 {busy}(인터럽트 {interrupts}), 나머지는 {others}(중앙값)입니다. 스레드 하나가 한계입니다.",
        ],
    ),
    (
        "cpu.spread-remedy",
        [
            "spread the receive work of {device} over the CPUs of node {node}",
            "{device} の受信処理をノード {node} の CPU に分散します",
            "{device}의 수신 처리를 노드 {node}의 CPU에 나눕니다",
        ],
    ),
    (
        "cpu.queues-remedy",
        [
            "give the device more queues (ethtool -L), each with its interrupt on a core of its own",
            "デバイスのキューを増やし（ethtool -L）、それぞれの割り込みを別のコアに割り当ててください",
            "장치의 큐를 늘리고(ethtool -L) 각 인터럽트를 서로 다른 코어에 두십시오",
        ],
    ),
    (
        "cpu.server-remedy",
        [
            "let {server} have more sessions or portals, so that more threads work; or another target (such as SCST instead of LIO)",
            "{server} のセッションやポータルを増やして複数のスレッドで処理させるか、別のターゲット（LIO の代わりに SCST など）にしてください",
            "{server}의 세션이나 포털을 늘려 여러 스레드가 일하게 하거나 다른 타깃(LIO 대신 SCST 등)을 쓰십시오",
        ],
    ),
    (
        "cpu.dropped",
        [
            "The kernel dropped {drops} received packets within {seconds} s, because a CPU's backlog was full.",
            "CPU の受信待ち行列があふれ、{seconds} 秒間に {drops} 個の受信パケットが破棄されました。",
            "CPU의 수신 대기열이 가득 차 {seconds}초 동안 수신 패킷 {drops}개가 버려졌습니다.",
        ],
    ),
    (
        "cpu.squeezed",
        [
            "CPU {cpu} ended its receive rounds early {rate} times a second, with packets left.",
            "CPU {cpu} は毎秒 {rate} 回、パケットを残したまま受信処理を打ち切りました。",
            "CPU {cpu}은(는) 초당 {rate}번 패킷이 남은 채로 수신 처리를 끊었습니다.",
        ],
    ),
    (
        "cpu.softnet-remedy",
        [
            "double the limit; if the count still grows, spread the interrupts over more CPUs",
            "上限を 2 倍にします。それでも増える場合は割り込みをより多くの CPU に分散してください",
            "한도를 두 배로 늘립니다. 그래도 늘어나면 인터럽트를 더 많은 CPU에 나누십시오",
        ],
    ),
];
