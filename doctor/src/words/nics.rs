//! Words of the checks of network interfaces.

use super::Row;

/// Sentences of the checks of interfaces, by their keys.
pub const ROWS: &[Row] = &[
    (
        "nics.queues",
        [
            "{nic} ({speed}) receives by {queues} queue(s), and {cores} cores are near it: no more than {queues} core(s) share the work of receiving",
            "{nic}（{speed}）の受信キューは {queues} 本で、近くに {cores} コアあります。受信処理は最大 {queues} コアしか分担できません",
            "{nic}({speed})의 수신 큐는 {queues}개이고 가까운 코어는 {cores}개입니다. 수신 처리는 최대 {queues}개 코어만 나눠 맡습니다",
        ],
    ),
    (
        "nics.queues-fine",
        [
            "{nic} ({speed}) receives by {queues} queues, with {cores} cores near it: queues are not the bound",
            "{nic}（{speed}）の受信キューは {queues} 本、近くのコアは {cores} 個：キュー数はボトルネックではありません",
            "{nic}({speed})의 수신 큐 {queues}개, 가까운 코어 {cores}개: 큐 수는 병목이 아닙니다",
        ],
    ),
    (
        "nics.queues-help",
        [
            "give {nic} {queues} queues (the link goes down for a moment; before it were {before})",
            "{nic} のキューを {queues} 本にします（リンクが一瞬切れます。変更前は {before} 本）",
            "{nic}의 큐를 {queues}개로 늘립니다(링크가 잠시 끊깁니다. 변경 전 {before}개)",
        ],
    ),
    (
        "nics.spread-help",
        [
            "let {nic} spread what it receives over all its {queues} queues",
            "{nic} の受信を {queues} 本すべてのキューに分散させます",
            "{nic}의 수신을 큐 {queues}개 전체에 분산시킵니다",
        ],
    ),
    (
        "nics.queues-no-more",
        [
            "the driver has no more queues: a newer driver or another card; receive packet steering (RPS) spreads the rest of the work",
            "ドライバーのキューはこれが上限です。新しいドライバーか別のカード、または RPS で残りの処理を分散できます",
            "드라이버가 제공하는 큐는 이것이 최대입니다. 최신 드라이버나 다른 카드, 또는 RPS로 나머지 작업을 분산할 수 있습니다",
        ],
    ),
    (
        "nics.drops",
        [
            "{nic} dropped {lost} packets in {seconds} s for want of room, and received {packets}: each one is sent again, and TCP slows down",
            "{nic} は {seconds} 秒間に空きがなく {lost} パケットを捨てました（受信 {packets}）。再送が起き、TCP が減速します",
            "{nic}이(가) {seconds}초 동안 공간 부족으로 패킷 {lost}개를 버렸습니다(수신 {packets}개). 재전송되고 TCP가 느려집니다",
        ],
    ),
    (
        "nics.drops-fine",
        [
            "{nic} dropped none of {packets} packets in {seconds} s",
            "{nic} は {seconds} 秒間に受信した {packets} パケットを1つも捨てていません",
            "{nic}은(는) {seconds}초 동안 패킷 {packets}개 중 하나도 버리지 않았습니다",
        ],
    ),
    (
        "nics.ring-help",
        [
            "a longer receive ring: {max} instead of {now} packets (the link may go down for a moment)",
            "受信リングを長くします：{now} から {max} パケットへ（リンクが一瞬切れることがあります）",
            "수신 링을 늘립니다: 패킷 {now}개에서 {max}개로(링크가 잠시 끊길 수 있습니다)",
        ],
    ),
    (
        "nics.ring-full-help",
        [
            "the ring is as long as it can be: the cores that empty it are too slow, or too few (queues, interrupts, memory)",
            "リングはすでに最大です。リングを空けるコアが遅いか足りません（キュー、割り込み、メモリ）",
            "링은 이미 최대입니다. 링을 비우는 코어가 느리거나 부족합니다(큐, 인터럽트, 메모리)",
        ],
    ),
    (
        "nics.half-duplex",
        [
            "{nic} runs half duplex: it cannot send while it receives, and collisions cost most of its speed",
            "{nic} は半二重で動いています。受信中に送信できず、衝突で速度の大半を失います",
            "{nic}이(가) 반이중으로 동작합니다. 수신 중에 송신할 수 없고 충돌로 속도 대부분을 잃습니다",
        ],
    ),
    (
        "nics.half-duplex-help",
        [
            "negotiation on at both ends: one end with a fixed mode makes the other fall back to half duplex",
            "両端でオートネゴシエーションを有効にします。片側だけ固定すると反対側が半二重に落ちます",
            "양쪽 모두 자동 협상을 켭니다. 한쪽만 고정하면 반대쪽이 반이중으로 떨어집니다",
        ],
    ),
    (
        "nics.fec",
        [
            "the link of {nic} had {blocks} blocks in {seconds} s that error correction could not save: each is lost packets",
            "{nic} のリンクで {seconds} 秒間に誤り訂正できないブロックが {blocks} 個ありました。パケットが失われています",
            "{nic} 링크에서 {seconds}초 동안 오류 정정에 실패한 블록이 {blocks}개 있었습니다. 패킷이 손실됩니다",
        ],
    ),
    (
        "nics.cable-help",
        [
            "the cable, its module or the port: clean it, seat it anew, exchange it",
            "ケーブル、モジュール、ポートを確認します：清掃、差し直し、交換",
            "케이블, 모듈, 포트를 점검합니다: 청소, 재장착, 교체",
        ],
    ),
    (
        "nics.mode-fine",
        [
            "{nic} runs at {speed}, the most that its card can do ({best})",
            "{nic} は {speed} で動作し、カードの最大（{best}）です",
            "{nic}은(는) {speed}로 동작하며 카드의 최대값({best})입니다",
        ],
    ),
    (
        "nics.mode-both",
        [
            "{nic} runs at {speed}, and both ends can {best}",
            "{nic} は {speed} で動いていますが、両端とも {best} に対応しています",
            "{nic}이(가) {speed}로 동작하지만 양쪽 모두 {best}가 가능합니다",
        ],
    ),
    (
        "nics.mode-not-offered",
        [
            "{nic} runs at {speed}, because this host does not offer the {best} that both ends can",
            "{nic} は {speed} で動いています。両端とも {best} に対応していますが、このホストが提示していません",
            "{nic}이(가) {speed}로 동작합니다. 양쪽 모두 {best}가 가능하지만 이 호스트가 제시하지 않습니다",
        ],
    ),
    (
        "nics.mode-partner",
        [
            "{nic} runs at {speed}: its card can {best}, the other end cannot",
            "{nic} は {speed} で動いています。カードは {best} に対応しますが、相手側が対応していません",
            "{nic}이(가) {speed}로 동작합니다. 카드는 {best}가 가능하지만 상대쪽이 지원하지 않습니다",
        ],
    ),
    (
        "nics.mode-unknown",
        [
            "{nic} runs at {speed}, and its card can {best}; what the other end can is not known",
            "{nic} は {speed} で動いていますが、カードは {best} に対応しています。相手側の能力は不明です",
            "{nic}이(가) {speed}로 동작하지만 카드는 {best}가 가능합니다. 상대쪽 능력은 알 수 없습니다",
        ],
    ),
    (
        "nics.offer-help",
        [
            "offer all that the card can do (the link goes down for a moment)",
            "カードが対応する全モードを提示します（リンクが一瞬切れます）",
            "카드가 지원하는 모든 모드를 제시합니다(링크가 잠시 끊깁니다)",
        ],
    ),
    (
        "nics.port-help",
        [
            "a port of the switch, a module and a cable that are as fast as the card",
            "カードと同じ速さのスイッチポート、モジュール、ケーブルを使います",
            "카드와 같은 속도의 스위치 포트, 모듈, 케이블을 사용합니다",
        ],
    ),
    (
        "nics.mtu-mismatch",
        [
            "{upper} sends packets of {upper-mtu} bytes, and {lower} below it takes {lower-mtu}: larger packets vanish, and transfers hang",
            "{upper} は {upper-mtu} バイトで送りますが、下の {lower} は {lower-mtu} までです。大きなパケットは消え、転送が止まります",
            "{upper}은(는) {upper-mtu}바이트로 보내지만 아래의 {lower}은(는) {lower-mtu}까지입니다. 큰 패킷이 사라지고 전송이 멈춥니다",
        ],
    ),
    (
        "nics.mtu-mismatch-help",
        [
            "{lower-mtu} bytes for {upper} at once; or the larger MTU for all below it, if every host of the subnet has it",
            "すぐに {upper} を {lower-mtu} バイトにします。または、サブネットの全ホストが対応していれば下位をすべて大きい MTU にします",
            "즉시 {upper}을(를) {lower-mtu}바이트로 맞춥니다. 또는 서브넷의 모든 호스트가 지원하면 하위를 모두 큰 MTU로 바꿉니다",
        ],
    ),
    (
        "nics.mtu-ports",
        [
            "{large} ({large-mtu} bytes) and {small} ({small-mtu}) are ports of bridge {bridge}, which does not divide packets: what comes in larger than {small-mtu} never leaves by {small}",
            "{large}（{large-mtu} バイト）と {small}（{small-mtu}）はブリッジ {bridge} のポートです。ブリッジは分割しないため、{small-mtu} を超えるものは {small} から出られません",
            "{large}({large-mtu}바이트)와 {small}({small-mtu})은 브리지 {bridge}의 포트입니다. 브리지는 패킷을 나누지 않으므로 {small-mtu}보다 큰 것은 {small}(으)로 나가지 못합니다",
        ],
    ),
    (
        "nics.mtu-ports-help",
        [
            "one MTU for all ports of the bridge and the hosts behind them",
            "ブリッジの全ポートとその先のホストの MTU を揃えます",
            "브리지의 모든 포트와 그 뒤 호스트의 MTU를 통일합니다",
        ],
    ),
    (
        "nics.mtu-unused",
        [
            "{lower} takes packets of {lower-mtu} bytes, but bridge {bridge} above it, which alone uses it, has an MTU of {bridge-mtu}: this host, and guests that take over the bridge's MTU, send {bridge-mtu}, and the larger size is of no use",
            "{lower} は {lower-mtu} バイトまで扱えますが、それを使う唯一のブリッジ {bridge} の MTU は {bridge-mtu} です。このホストと、ブリッジの MTU を引き継ぐゲストは {bridge-mtu} で送信し、大きいサイズは活かされません",
            "{lower}은(는) {lower-mtu}바이트까지 받지만 이를 쓰는 유일한 브리지 {bridge}의 MTU는 {bridge-mtu}입니다. 이 호스트와 브리지의 MTU를 물려받는 게스트는 {bridge-mtu}로 보내므로 큰 크기가 쓰이지 않습니다",
        ],
    ),
    (
        "nics.mtu-unused-help",
        [
            "if every host and switch of the subnet has {lower-mtu}, the same for {bridge} and all its ports, and in its configuration (Proxmox VE: a line `mtu {lower-mtu}` at the bridge in /etc/network/interfaces); else {bridge-mtu} for {lower}",
            "サブネットの全ホストと全スイッチが {lower-mtu} なら、{bridge} とその全ポート、および設定ファイルにも同じ値を設定します（Proxmox VE では /etc/network/interfaces のブリッジに `mtu {lower-mtu}` の行）。そうでなければ {lower} を {bridge-mtu} にします",
            "서브넷의 모든 호스트와 스위치가 {lower-mtu}이면 {bridge}와 그 모든 포트, 설정 파일에도 같은 값을 씁니다(Proxmox VE: /etc/network/interfaces의 브리지에 `mtu {lower-mtu}` 줄). 아니면 {lower}의 MTU를 {bridge-mtu}로 맞춥니다",
        ],
    ),
    (
        "nics.mtu-bridge-help",
        [
            "an MTU of 9000 for {nic}, for every other port of bridge {bridge}, and then for {bridge} and the guests behind it, but only if every host and switch of the subnet has it",
            "{nic}、ブリッジ {bridge} のほかの全ポート、続いて {bridge} とその先のゲストの MTU を 9000 にします。ただしサブネットの全ホストと全スイッチが対応している場合だけです",
            "{nic}, 브리지 {bridge}의 다른 모든 포트, 이어서 {bridge}와 그 뒤 게스트의 MTU를 9000으로 합니다. 단 서브넷의 모든 호스트와 스위치가 지원할 때만입니다",
        ],
    ),
    (
        "nics.mtu-fine",
        [
            "{nic} has an MTU of {mtu}, and all below it take at least {lower}",
            "{nic} の MTU は {mtu}、下位はすべて {lower} 以上です",
            "{nic}의 MTU는 {mtu}이고 하위는 모두 {lower} 이상입니다",
        ],
    ),
    (
        "nics.mtu-jumbo",
        [
            "{nic} has an MTU of {mtu}: headers are not the bound",
            "{nic} の MTU は {mtu}：ヘッダーの負担はボトルネックではありません",
            "{nic}의 MTU는 {mtu}: 헤더 부담은 병목이 아닙니다",
        ],
    ),
    (
        "nics.mtu-1500",
        [
            "{nic} ({speed}) has an MTU of 1500: 9000 would carry 5.2 % more by TCP, with a sixth of the packets",
            "{nic}（{speed}）の MTU は 1500 です。9000 なら TCP で 5.2 % 多く運べ、パケット数は6分の1になります",
            "{nic}({speed})의 MTU는 1500입니다. 9000이면 TCP로 5.2 % 더 전송하고 패킷 수는 6분의 1이 됩니다",
        ],
    ),
    (
        "nics.mtu-1500-help",
        [
            "an MTU of 9000, but only if every host and every switch of the subnet has it: one that has not loses packets",
            "MTU を 9000 にします。ただしサブネットの全ホストと全スイッチが対応している場合だけです。1台でも違うとパケットが失われます",
            "MTU를 9000으로 합니다. 단 서브넷의 모든 호스트와 스위치가 지원할 때만입니다. 하나라도 다르면 패킷이 손실됩니다",
        ],
    ),
    (
        "nics.offload-off",
        [
            "{offload} is off at {nic} ({speed}): the CPU handles each packet of 1500 bytes by itself, instead of up to 64 KB at once",
            "{nic}（{speed}）の {offload} が無効です。CPU は最大 64 KB をまとめる代わりに 1500 バイトずつ処理します",
            "{nic}({speed})의 {offload}가 꺼져 있습니다. CPU가 최대 64 KB를 한 번에 처리하지 못하고 1500바이트씩 처리합니다",
        ],
    ),
    (
        "nics.offload-fine",
        [
            "{nic} joins and divides packets by itself (TSO and GRO are on): the work for each packet is not the bound",
            "{nic} は TSO と GRO が有効で、パケットごとの処理はボトルネックではありません",
            "{nic}은(는) TSO와 GRO가 켜져 있어 패킷당 처리는 병목이 아닙니다",
        ],
    ),
    (
        "nics.offload-help",
        [
            "switch it on, unless somebody switched it off for a fault of the driver (`off` takes it back)",
            "有効にします。ドライバーの不具合で無効にした場合を除きます（off で元に戻せます）",
            "켭니다. 드라이버 결함 때문에 끈 경우는 제외합니다(off로 되돌립니다)",
        ],
    ),
    (
        "nics.no-coalescing",
        [
            "{nic} interrupts for every packet, and {packets} packets come in a second",
            "{nic} はパケットごとに割り込みを上げ、毎秒 {packets} パケットを受信しています",
            "{nic}은(는) 패킷마다 인터럽트를 걸며 초당 {packets}개 패킷이 들어옵니다",
        ],
    ),
    (
        "nics.coalescing-help",
        [
            "let the driver wait under load (`adaptive-rx off` takes it back)",
            "負荷時にドライバーが割り込みをまとめるようにします（adaptive-rx off で元に戻せます）",
            "부하 시 드라이버가 인터럽트를 모으게 합니다(adaptive-rx off로 되돌립니다)",
        ],
    ),
    (
        "nics.pause-fine",
        [
            "{nic} had {frames} pause frames in {seconds} s: flow control is not the bound",
            "{nic} のポーズフレームは {seconds} 秒間に {frames} 個：フロー制御はボトルネックではありません",
            "{nic}의 일시정지 프레임은 {seconds}초 동안 {frames}개: 흐름 제어는 병목이 아닙니다",
        ],
    ),
    (
        "nics.paused",
        [
            "the other end told {nic} {frames} times in {seconds} s to stop sending: the bound is behind it",
            "相手側が {nic} に {seconds} 秒間で {frames} 回、送信の停止を求めました。ボトルネックはその先にあります",
            "상대쪽이 {nic}에 {seconds}초 동안 {frames}번 송신 중지를 요구했습니다. 병목은 그 너머에 있습니다",
        ],
    ),
    (
        "nics.paused-help",
        [
            "look for the slow port behind the switch; where many share it, flow control stops those too that do not go there",
            "スイッチの先の遅いポートを探します。共有されている場合、無関係な通信もフロー制御で止まります",
            "스위치 뒤의 느린 포트를 찾습니다. 공유 중이면 관계없는 통신도 흐름 제어로 멈춥니다",
        ],
    ),
    (
        "nics.pauses",
        [
            "{nic} told the other end {frames} times in {seconds} s to stop sending: this host receives slower than the line",
            "{nic} は {seconds} 秒間に {frames} 回、相手に送信の停止を求めました。このホストの受信が回線より遅いためです",
            "{nic}이(가) {seconds}초 동안 {frames}번 상대에게 송신 중지를 요구했습니다. 이 호스트의 수신이 회선보다 느립니다",
        ],
    ),
    (
        "nics.pauses-help",
        [
            "what empties the card: its slot (PCIe), its queues, the cores of its interrupts, its NUMA node",
            "カードからの取り出しを速くします：スロット（PCIe）、キュー、割り込みのコア、NUMA ノード",
            "카드를 비우는 쪽을 살핍니다: 슬롯(PCIe), 큐, 인터럽트 코어, NUMA 노드",
        ],
    ),
    (
        "nics.rdma-fine",
        [
            "RDMA port {port}: its counters of errors stand still",
            "RDMA ポート {port}：エラーカウンタは増えていません",
            "RDMA 포트 {port}: 오류 카운터가 증가하지 않습니다",
        ],
    ),
    (
        "nics.rdma-init",
        [
            "RDMA port {port} has a link and no subnet manager: it waits in INIT and carries nothing",
            "RDMA ポート {port} はリンクしていますがサブネットマネージャーがなく、INIT のまま何も運べません",
            "RDMA 포트 {port}은(는) 링크가 있지만 서브넷 매니저가 없어 INIT 상태로 아무것도 전송하지 못합니다",
        ],
    ),
    (
        "nics.rdma-init-help",
        [
            "start a subnet manager (opensm) on one host or in the switch",
            "いずれかのホストかスイッチでサブネットマネージャー（opensm）を動かします",
            "한 호스트나 스위치에서 서브넷 매니저(opensm)를 실행합니다",
        ],
    ),
    (
        "nics.rdma-symbols",
        [
            "RDMA port {port} had {count} symbol errors between two looks: the line is bad",
            "RDMA ポート {port} で2回の観測の間にシンボルエラーが {count} 件ありました。回線が不良です",
            "RDMA 포트 {port}에서 두 관측 사이에 심볼 오류가 {count}건 있었습니다. 회선이 불량입니다",
        ],
    ),
    (
        "nics.rdma-lost",
        [
            "RDMA port {port} missed {count} packets between two looks: each loss makes the card send a whole window again",
            "RDMA ポート {port} で2回の観測の間にパケットが {count} 個欠けました。1つ欠けるたびにウィンドウ全体が再送されます",
            "RDMA 포트 {port}에서 두 관측 사이에 패킷 {count}개가 빠졌습니다. 하나를 잃을 때마다 윈도 전체를 다시 보냅니다",
        ],
    ),
    (
        "nics.rdma-lost-help",
        [
            "RoCE needs a network that does not drop: PFC or ECN alike on all hosts and switches",
            "RoCE にはパケットを捨てないネットワークが必要です。PFC か ECN を全ホストとスイッチで揃えます",
            "RoCE에는 손실 없는 네트워크가 필요합니다. 모든 호스트와 스위치에서 PFC 또는 ECN을 맞춥니다",
        ],
    ),
    (
        "nics.rdma-not-ready",
        [
            "RDMA port {port}: {count} times between two looks the receiver had no buffer ready, and this end had to wait",
            "RDMA ポート {port}：2回の観測の間に {count} 回、受信側のバッファが用意できておらず、こちらは待たされました",
            "RDMA 포트 {port}: 두 관측 사이에 {count}번 수신 측 버퍼가 준비되지 않아 이쪽이 기다려야 했습니다",
        ],
    ),
    (
        "nics.rdma-not-ready-help",
        [
            "more receive buffers in the program at the other end, or a faster one",
            "相手側プログラムの受信バッファを増やすか、処理を速くします",
            "상대쪽 프로그램의 수신 버퍼를 늘리거나 처리를 빠르게 합니다",
        ],
    ),
    (
        "nics.rdma-waits",
        [
            "RDMA port {port} could not send for {percent} % of the time in which it had something to send: the network pushes back",
            "RDMA ポート {port} は送るものがあった時間の {percent} % で送信できませんでした。ネットワーク側が詰まっています",
            "RDMA 포트 {port}은(는) 보낼 것이 있던 시간의 {percent} % 동안 보내지 못했습니다. 네트워크가 밀어내고 있습니다",
        ],
    ),
    (
        "nics.rdma-waits-help",
        [
            "look for the slow receiver: the host, its slot, or a narrower link on the way",
            "遅い受信側を探します：ホスト、スロット、途中の細いリンク",
            "느린 수신 측을 찾습니다: 호스트, 슬롯, 중간의 좁은 링크",
        ],
    ),
];
