//! Words of what two nodes see of the links between them.

use super::Row;

/// Sentences of what two nodes see of their links, by their keys.
pub const ROWS: &[Row] = &[
    (
        "peer.title",
        [
            "Links between {here} (Forebay {mine}) and {there} (Forebay {theirs}):",
            "{here}（Forebay {mine}）と {there}（Forebay {theirs}）の間のリンク：",
            "{here}(Forebay {mine})와(과) {there}(Forebay {theirs}) 사이의 링크:",
        ],
    ),
    ("peer.path", ["between", "経路", "경로"]),
    ("peer.verdict", ["verdict", "判定", "판정"]),
    ("peer.up", ["up", "接続中", "연결됨"]),
    ("peer.down", ["down", "切断", "끊김"]),
    ("peer.good", ["good", "良好", "양호"]),
    ("peer.one-side", ["seen from here alone", "こちら側のみ確認", "이쪽에서만 확인"]),
    (
        "peer.mtu",
        [
            "{nic} of {from} ({own}) sends packets of up to {mtu} bytes, and {other} of {to} ({peer}) takes {least}: larger ones are lost without a word. TCP agrees on {least}; UDP, RDMA and whatever sends as its own interface allows do not get through",
            "{from} の {nic}（{own}）は最大 {mtu} バイトのパケットを送りますが、{to} の {other}（{peer}）が受け取れるのは {least} バイトまでです。それより大きいものは通知なく失われます。TCP は {least} に合わせますが、UDP や RDMA など自分のインターフェースの大きさで送るものは届きません",
            "{from}의 {nic}({own})은(는) 최대 {mtu}바이트 패킷을 보내지만 {to}의 {other}({peer})은(는) {least}바이트까지만 받습니다. 더 큰 것은 알림 없이 사라집니다. TCP는 {least}에 맞추지만 UDP, RDMA처럼 자기 인터페이스 크기로 보내는 것은 도달하지 못합니다",
        ],
    ),
    (
        "peer.mtu-differs",
        [
            "{nic} of {from} ({own}) has an MTU of {mtu}, {other} of {to} ({peer}) one of {least}, in one subnet: TCP sends {least} at most, and nothing else may rely on more",
            "同じサブネットで、{from} の {nic}（{own}）の MTU は {mtu}、{to} の {other}（{peer}）は {least} です。TCP は最大 {least} で送り、他の通信もそれ以上は当てにできません",
            "같은 서브넷에서 {from}의 {nic}({own}) MTU는 {mtu}, {to}의 {other}({peer})은(는) {least}입니다. TCP는 최대 {least}로 보내며 다른 통신도 그 이상을 기대할 수 없습니다",
        ],
    ),
    (
        "peer.mtu-raise",
        [
            "at {node}, if the switches between them carry it: the larger MTU, {mtu}",
            "間のスイッチが対応していれば、{node} で大きい方の MTU {mtu} に合わせます",
            "중간 스위치가 지원하면 {node}에서 더 큰 MTU {mtu}(으)로 맞춥니다",
        ],
    ),
    (
        "peer.mtu-lower",
        [
            "else at {node} the smaller one, {mtu}",
            "そうでなければ {node} で小さい方の {mtu} に合わせます",
            "아니면 {node}에서 더 작은 {mtu}(으)로 맞춥니다",
        ],
    ),
    (
        "peer.path-lost",
        [
            "packets of {bytes} bytes from {from} ({own}) do not arrive at {to} ({peer}), small ones do: something between them takes less and does not say so, and TCP connections stand still whenever they send whole packets",
            "{from}（{own}）から {to}（{peer}）への {bytes} バイトのパケットは届かず、小さいものは届きます。間の何かがより小さい大きさしか通さず、それを知らせません。TCP 接続は大きなパケットを送るたびに止まります",
            "{from}({own})에서 {to}({peer})(으)로 가는 {bytes}바이트 패킷은 도달하지 않고 작은 것은 도달합니다. 중간의 무언가가 더 작은 크기만 통과시키면서 알리지 않습니다. TCP 연결은 큰 패킷을 보낼 때마다 멈춥니다",
        ],
    ),
    (
        "peer.path-limit",
        [
            "the way from {from} ({own}) to {to} ({peer}) takes packets of {limit} bytes, and the interface sends {bytes}: it says so, and TCP keeps to it",
            "{from}（{own}）から {to}（{peer}）への経路は {limit} バイトまでで、インターフェースは {bytes} バイトを送ります。経路が通知するので TCP はそれに従います",
            "{from}({own})에서 {to}({peer})(으)로 가는 경로는 {limit}바이트까지이고 인터페이스는 {bytes}바이트를 보냅니다. 경로가 알려 주므로 TCP는 그에 따릅니다",
        ],
    ),
    (
        "peer.path-help",
        [
            "look at the switches, tunnels and VLANs between them: each must take {bytes} bytes; else give both ends the MTU that arrives",
            "間のスイッチ、トンネル、VLAN を確認してください。すべてが {bytes} バイトを通す必要があります。できなければ両端を届く大きさの MTU に合わせます",
            "중간의 스위치, 터널, VLAN을 확인하십시오. 모두 {bytes}바이트를 통과시켜야 합니다. 아니면 양쪽 끝을 도달하는 MTU로 맞춥니다",
        ],
    ),
    (
        "peer.channel",
        [
            "the channel from {own} to {peer} is down ({why}): {up} of {all} channels between {from} and {to} carry what they all should",
            "{own} から {peer} へのチャネルが切れています（{why}）。{from} と {to} の間では {all} 本のうち {up} 本ですべてを運んでいます",
            "{own}에서 {peer}(으)로 가는 채널이 끊겼습니다({why}). {from}와(과) {to} 사이에서 {all}개 중 {up}개가 모두를 나릅니다",
        ],
    ),
    (
        "peer.channel-help",
        [
            "see whether {peer} answers from {own} (`ping -I {own} {peer}`), cable and interface at both ends, and firewalls for the port",
            "{own} から {peer} に届くか（`ping -I {own} {peer}`）、両端のケーブルとインターフェース、ポートのファイアウォールを確認してください",
            "{own}에서 {peer}에 도달하는지(`ping -I {own} {peer}`), 양쪽의 케이블과 인터페이스, 포트의 방화벽을 확인하십시오",
        ],
    ),
    (
        "peer.mptcp-one",
        [
            "{one} wants Multipath TCP and {other} does not: the channel from {own} to {peer} is plain TCP",
            "{one} は Multipath TCP を求めますが {other} は求めていません。{own} と {peer} の間のチャネルは通常の TCP です",
            "{one}은(는) Multipath TCP를 원하지만 {other}은(는) 아닙니다. {own}와(과) {peer} 사이의 채널은 일반 TCP입니다",
        ],
    ),
    (
        "peer.mptcp-lost",
        [
            "{one} and {other} both want Multipath TCP, and the channel from {own} to {peer} is plain TCP: a kernel without it, or something between that strips it",
            "{one} と {other} はどちらも Multipath TCP を求めますが、{own} と {peer} の間のチャネルは通常の TCP です。対応しないカーネルか、間の何かが取り除いています",
            "{one}와(과) {other} 모두 Multipath TCP를 원하지만 {own}와(과) {peer} 사이의 채널은 일반 TCP입니다. 지원하지 않는 커널이거나 중간에서 제거되었습니다",
        ],
    ),
    (
        "peer.resent",
        [
            "{percent} % of what {from} sends from {own} to {peer} is sent again ({resent} of {segments} segments): packets are lost, and TCP slows down each time",
            "{from} が {own} から {peer} へ送ったものの {percent} % が再送です（{segments} セグメント中 {resent}）。パケットが失われ、そのたびに TCP が減速します",
            "{from}이(가) {own}에서 {peer}(으)로 보낸 것의 {percent} %가 재전송입니다(세그먼트 {segments}개 중 {resent}개). 패킷이 손실되고 그때마다 TCP가 느려집니다",
        ],
    ),
    (
        "peer.resent-help",
        [
            "look for errors and drops at both interfaces and the ports of the switch (`ethtool -S`), then at cable and transceiver",
            "両端のインターフェースとスイッチのポートのエラーと破棄（`ethtool -S`）、次にケーブルとトランシーバーを確認してください",
            "양쪽 인터페이스와 스위치 포트의 오류와 폐기(`ethtool -S`), 그다음 케이블과 트랜시버를 확인하십시오",
        ],
    ),
    (
        "peer.duplex",
        [
            "{nic} of {from} ({own}) sends or receives, never both at a time: the line to {to} carries half, with collisions",
            "{from} の {nic}（{own}）は半二重です。{to} への回線は半分しか運べず、衝突も起きます",
            "{from}의 {nic}({own})은(는) 반이중입니다. {to}(으)로 가는 회선은 절반만 나르고 충돌도 생깁니다",
        ],
    ),
    (
        "peer.arrives",
        [
            "what {from} sends to {peer} arrives at {other} of {to}, although {nic} has that address: {to} answers ARP for all of its addresses at each interface, and {nic} receives nothing",
            "{from} が {peer} へ送ったものは、そのアドレスを持つ {nic} ではなく {to} の {other} に届きます。{to} がどのインターフェースでも全アドレスの ARP に答えるため、{nic} は何も受信しません",
            "{from}이(가) {peer}(으)로 보낸 것은 그 주소를 가진 {nic}이 아니라 {to}의 {other}에 도착합니다. {to}이(가) 모든 인터페이스에서 모든 주소의 ARP에 답하므로 {nic}은(는) 아무것도 받지 않습니다",
        ],
    ),
    (
        "peer.arrives-help",
        [
            "give each interface a subnet of its own; or let {node} answer only for the addresses of the interface that is asked",
            "インターフェースごとに別のサブネットにするか、{node} が問い合わせを受けたインターフェースのアドレスだけに答えるようにします",
            "인터페이스마다 별도의 서브넷을 쓰거나, {node}이(가) 질문을 받은 인터페이스의 주소에만 답하게 합니다",
        ],
    ),
    (
        "peer.subnet",
        [
            "{from} has {own}/{here}, {to} has {peer}/{there}: one takes the other for a neighbour, the other sends to a router, and packets go two ways",
            "{from} は {own}/{here}、{to} は {peer}/{there} です。一方は相手を隣とみなし、他方はルーターへ送るため、往路と復路が異なります",
            "{from}은(는) {own}/{here}, {to}은(는) {peer}/{there}입니다. 한쪽은 상대를 이웃으로 보고 다른 쪽은 라우터로 보내므로 오가는 길이 다릅니다",
        ],
    ),
    (
        "peer.subnet-wider",
        [
            "{from} has {own}/{here}, {to} has {peer}/{there}: they reach each other, and do not agree on who else is near",
            "{from} は {own}/{here}、{to} は {peer}/{there} です。互いには届きますが、サブネットの範囲が一致していません",
            "{from}은(는) {own}/{here}, {to}은(는) {peer}/{there}입니다. 서로 도달하지만 서브넷 범위가 일치하지 않습니다",
        ],
    ),
    (
        "peer.subnet-help",
        [
            "give both ends one length of prefix",
            "両端のプレフィックス長を揃えてください",
            "양쪽의 프리픽스 길이를 맞추십시오",
        ],
    ),
    (
        "peer.speed",
        [
            "{nic} of {from} ({own}) is a line of {speed}, {other} of {to} ({peer}) one of {faster}: the pair carries {speed} at most",
            "{from} の {nic}（{own}）は {speed}、{to} の {other}（{peer}）は {faster} です。この組は最大 {speed} しか運べません",
            "{from}의 {nic}({own})은(는) {speed}, {to}의 {other}({peer})은(는) {faster}입니다. 이 쌍은 최대 {speed}만 나릅니다",
        ],
    ),
    (
        "peer.speed-help",
        [
            "if {nic} of {from} can do more: its cable and its port at the switch; else a faster card there",
            "{from} の {nic} がより速く動けるなら、ケーブルとスイッチのポートを確認してください。そうでなければより速いカードが必要です",
            "{from}의 {nic}이(가) 더 빠를 수 있다면 케이블과 스위치 포트를 확인하십시오. 아니면 더 빠른 카드가 필요합니다",
        ],
    ),
    (
        "peer.way",
        [
            "what {node} sends from {own} leaves by {used}, although {nic} has that address: it shares {used} with the channel of {other}, and {nic} sends nothing",
            "{node} が {own} から送るものは、そのアドレスを持つ {nic} ではなく {used} から出ます。{other} のチャネルと {used} を共有し、{nic} は何も送りません",
            "{node}이(가) {own}에서 보내는 것은 그 주소를 가진 {nic}이 아니라 {used}(으)로 나갑니다. {other}의 채널과 {used}을(를) 함께 쓰고 {nic}은(는) 아무것도 보내지 않습니다",
        ],
    ),
    (
        "peer.way-help",
        [
            "give {nic} of {node} a subnet of its own, or a rule that leads packets from its address out by it",
            "{node} の {nic} に別のサブネットを与えるか、そのアドレスからのパケットを {nic} から出すルールを設定します",
            "{node}의 {nic}에 별도의 서브넷을 주거나, 그 주소에서 나가는 패킷을 {nic}(으)로 내보내는 규칙을 설정합니다",
        ],
    ),
    (
        "peer.clock-ahead",
        [
            "the clock of {there} is at least {seconds} s ahead of that of {here}: events of the two are put in the wrong order",
            "{there} の時計は {here} より少なくとも {seconds} 秒進んでいます。両者のイベントの順序が入れ替わります",
            "{there}의 시계가 {here}보다 최소 {seconds}초 빠릅니다. 두 노드의 이벤트 순서가 뒤바뀝니다",
        ],
    ),
    (
        "peer.clock-behind",
        [
            "the clock of {there} is at least {seconds} s behind that of {here}: events of the two are put in the wrong order",
            "{there} の時計は {here} より少なくとも {seconds} 秒遅れています。両者のイベントの順序が入れ替わります",
            "{there}의 시계가 {here}보다 최소 {seconds}초 느립니다. 두 노드의 이벤트 순서가 뒤바뀝니다",
        ],
    ),
    (
        "peer.clock-help",
        [
            "let both follow one source of time (chrony, systemd-timesyncd)",
            "両方を同じ時刻源に同期させてください（chrony、systemd-timesyncd）",
            "둘 다 같은 시간 소스에 동기화하십시오(chrony, systemd-timesyncd)",
        ],
    ),
    (
        "peer.gone",
        [
            "{peer} has not answered within {seconds} s, and no channel to it works: it is off, its daemon does not run, or the network between is cut",
            "{peer} は {seconds} 秒以内に応答せず、つながるチャネルもありません。停止しているか、デーモンが動いていないか、間のネットワークが切れています",
            "{peer}이(가) {seconds}초 안에 응답하지 않았고 작동하는 채널도 없습니다. 꺼져 있거나 데몬이 실행되지 않거나 중간 네트워크가 끊겼습니다",
        ],
    ),
    (
        "peer.gone-since",
        [
            "{peer} has not answered within {seconds} s, and the link to it is down since {since}: it is off, its daemon does not run, or the network between is cut",
            "{peer} は {seconds} 秒以内に応答せず、リンクは {since} から切れています。停止しているか、デーモンが動いていないか、間のネットワークが切れています",
            "{peer}이(가) {seconds}초 안에 응답하지 않았고 링크는 {since}부터 끊겨 있습니다. 꺼져 있거나 데몬이 실행되지 않거나 중간 네트워크가 끊겼습니다",
        ],
    ),
    (
        "peer.stopped",
        [
            "{peer} has not answered within {seconds} s, and no channel to it works, although its machine answers packets: its daemon does not run or hangs, or a firewall is before its port",
            "{peer} は {seconds} 秒以内に応答せず、つながるチャネルもありませんが、マシンはパケットに応答します。デーモンが動いていないか固まっているか、ポートの前にファイアウォールがあります",
            "{peer}이(가) {seconds}초 안에 응답하지 않았고 작동하는 채널도 없지만 머신은 패킷에 응답합니다. 데몬이 실행되지 않거나 멈췄거나 포트 앞에 방화벽이 있습니다",
        ],
    ),
    (
        "peer.stopped-since",
        [
            "{peer} has not answered within {seconds} s, and the link to it is down since {since}, although its machine answers packets: its daemon does not run or hangs, or a firewall is before its port",
            "{peer} は {seconds} 秒以内に応答せず、リンクは {since} から切れていますが、マシンはパケットに応答します。デーモンが動いていないか固まっているか、ポートの前にファイアウォールがあります",
            "{peer}이(가) {seconds}초 안에 응답하지 않았고 링크는 {since}부터 끊겨 있지만 머신은 패킷에 응답합니다. 데몬이 실행되지 않거나 멈췄거나 포트 앞에 방화벽이 있습니다",
        ],
    ),
    (
        "peer.mute",
        [
            "{peer} has not answered within {seconds} s, although channels to it work: it does not reach the coordinator, or its daemon hangs",
            "{peer} はチャネルがつながっているのに {seconds} 秒以内に応答しませんでした。コーディネーターに届かないか、デーモンが固まっています",
            "{peer}은(는) 채널이 작동하는데도 {seconds}초 안에 응답하지 않았습니다. 코디네이터에 닿지 못하거나 데몬이 멈춰 있습니다",
        ],
    ),
    (
        "peer.gone-help",
        [
            "look at {peer} itself: `systemctl status forebay`, and its messages; what follows is seen from this side alone",
            "{peer} 自体を確認してください（`systemctl status forebay` とそのメッセージ）。以下はこちら側だけから見たものです",
            "{peer} 자체를 확인하십시오(`systemctl status forebay`와 그 메시지). 아래는 이쪽에서만 본 것입니다",
        ],
    ),
    (
        "peer.older",
        [
            "its Forebay is older than this question: upgrade {peer}, or run `forebay doctor` there",
            "この問い合わせに対応しない古い Forebay です。{peer} を更新するか、そこで `forebay doctor` を実行してください",
            "이 질문을 지원하지 않는 이전 Forebay입니다. {peer}을(를) 업그레이드하거나 그곳에서 `forebay doctor`를 실행하십시오",
        ],
    ),
    (
        "peer.ask-there",
        [
            "run `forebay doctor` at {peer}",
            "{peer} で `forebay doctor` を実行してください",
            "{peer}에서 `forebay doctor`를 실행하십시오",
        ],
    ),
    (
        "peer.let-icmp",
        [
            "firewalls between them must let UDP to port 33434 and the answers by ICMP pass",
            "間のファイアウォールで UDP ポート 33434 と ICMP の応答を通してください",
            "중간 방화벽이 UDP 포트 33434와 ICMP 응답을 통과시켜야 합니다",
        ],
    ),
    (
        "peer.fine",
        [
            "packets of {bytes} bytes arrive both ways between {own} of {from} and {peer} of {to}",
            "{from} の {own} と {to} の {peer} の間では {bytes} バイトのパケットが両方向とも届きます",
            "{from}의 {own}와(과) {to}의 {peer} 사이에서 {bytes}바이트 패킷이 양방향 모두 도달합니다",
        ],
    ),
    (
        "peer.fine-out",
        [
            "packets of {bytes} bytes from {own} of {from} arrive at {peer} of {to}",
            "{from} の {own} からの {bytes} バイトのパケットは {to} の {peer} に届きます",
            "{from}의 {own}에서 보낸 {bytes}바이트 패킷이 {to}의 {peer}에 도달합니다",
        ],
    ),
    (
        "peer.rdma-both",
        [
            "both ends of {own} - {peer} have an RDMA port in use ({here} at {from}, {there} at {to}): storage protocols between them can do without TCP",
            "{own} - {peer} の両端に使用中の RDMA ポートがあります（{from} の {here}、{to} の {there}）。間のストレージプロトコルは TCP なしで動けます",
            "{own} - {peer}의 양쪽 끝에 사용 중인 RDMA 포트가 있습니다({from}의 {here}, {to}의 {there}). 둘 사이의 스토리지 프로토콜은 TCP 없이 동작할 수 있습니다",
        ],
    ),
    (
        "peer.rdma-one",
        [
            "of {own} - {peer} only {node} has an RDMA port in use ({port}): between {from} and {to} there is TCP",
            "{own} - {peer} では {node} だけに使用中の RDMA ポート（{port}）があります。{from} と {to} の間は TCP です",
            "{own} - {peer}에서 {node}에만 사용 중인 RDMA 포트({port})가 있습니다. {from}와(과) {to} 사이는 TCP입니다",
        ],
    ),
];
