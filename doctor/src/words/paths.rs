//! Words of the checks of paths to other hosts.

use super::Row;

/// Sentences of the checks of paths to other hosts, by their keys.
pub const ROWS: &[Row] = &[
    (
        "paths.rdma-idle",
        [
            "{user} reaches {peer} by TCP over {nic}, while the card's RDMA port {port} is ready and idle: reads can be twice as fast by RDMA, if the other end serves it",
            "{user} は {nic} 経由の TCP で {peer} に接続しています。同じカードの RDMA ポート {port} は使用可能なのに遊んでいます。相手が対応していれば RDMA で読み出しが2倍になることがあります",
            "{user}은(는) {nic}을(를) 통해 TCP로 {peer}에 연결됩니다. 같은 카드의 RDMA 포트 {port}은(는) 사용 가능한데 쉬고 있습니다. 상대가 지원하면 RDMA로 읽기가 두 배가 될 수 있습니다",
        ],
    ),
    (
        "paths.rdma-used",
        [
            "{user} goes by RDMA: TCP's copies are not the bound",
            "{user} は RDMA を使用：TCP のコピーはボトルネックではありません",
            "{user}은(는) RDMA 사용: TCP 복사는 병목이 아닙니다",
        ],
    ),
    (
        "paths.rdma-help",
        [
            "mount with proto=rdma,port=20049 (NFS) or connect with transport rdma (NVMe), once the server listens there",
            "サーバー側で待ち受けを有効にしてから、NFS は proto=rdma,port=20049 でマウント、NVMe は transport rdma で接続します",
            "서버가 수신 대기하도록 한 뒤 NFS는 proto=rdma,port=20049로 마운트하고 NVMe는 transport rdma로 연결합니다",
        ],
    ),
    (
        "paths.bond-one",
        [
            "{bond} ({mode}) sends by one member at a time: it is for failures, and adds no speed",
            "{bond}（{mode}）は一度に1メンバーで送信します。冗長化のためで、速度は増えません",
            "{bond}({mode})은(는) 한 번에 한 멤버로 보냅니다. 장애 대비용이며 속도는 늘지 않습니다",
        ],
    ),
    (
        "paths.bond-down",
        [
            "{bond} ({mode}) has no link at {down}: {members} of {all} members carry",
            "{bond}（{mode}）の {down} がリンクダウンしています。{all} メンバーのうち {members} だけが通信できます",
            "{bond}({mode})의 {down} 링크가 끊겨 있습니다. 멤버 {all}개 중 {members}개만 전송할 수 있습니다",
        ],
    ),
    (
        "paths.bond-down-help",
        [
            "check the cable and the switch's port of {down}, and whether the interface was set down; a member that is meant to be unused is better taken out of the bond",
            "{down} のケーブルとスイッチ側のポート、NIC が無効にされていないかを確認します。使わないメンバーならボンドから外します",
            "{down}의 케이블과 스위치 포트, 인터페이스가 비활성화되어 있는지 확인합니다. 쓰지 않을 멤버라면 본드에서 뺍니다",
        ],
    ),
    (
        "paths.bond-fine",
        [
            "{bond} spreads by {hash} over {members} members; one connection still goes by one of them, at {speed}",
            "{bond} は {hash} で {members} メンバーに分散します。1接続は1メンバー（{speed}）までです",
            "{bond}은(는) {hash}로 멤버 {members}개에 분산합니다. 연결 하나는 여전히 멤버 하나({speed})로 갑니다",
        ],
    ),
    (
        "paths.bond-uneven-sent",
        [
            "{member} sent {share} of what {bond} did in {seconds} s ({rate}): of {members} members the others were all but idle. {bond} chooses by {hash}, and one connection always goes by one member",
            "{bond} が {seconds} 秒間に送信した量（{rate}）の {share} は {member} を通りました。{members} メンバーの残りはほぼ使われていません。{bond} は {hash} で選び、1接続は常に1メンバーを通ります",
            "{bond}에서 {seconds}초 동안 보낸 양({rate})의 {share}는 {member}로 나갔습니다. 멤버 {members}개 중 나머지는 거의 쉬었습니다. 선택 기준은 {hash}이며 연결 하나는 항상 멤버 하나로 갑니다",
        ],
    ),
    (
        "paths.bond-uneven-received",
        [
            "{member} received {share} of what {bond} did in {seconds} s ({rate}): of {members} members the others were all but idle. The switch chooses by which member it sends, and one connection always comes by one",
            "{bond} が {seconds} 秒間に受信した量（{rate}）の {share} は {member} から届きました。{members} メンバーの残りはほぼ使われていません。どのメンバーに送るかはスイッチが選び、1接続は常に1メンバーから届きます",
            "{bond}에서 {seconds}초 동안 받은 양({rate})의 {share}는 {member}로 들어왔습니다. 멤버 {members}개 중 나머지는 거의 쉬었습니다. 어느 멤버로 보낼지는 스위치가 고르며 연결 하나는 항상 멤버 하나로 들어옵니다",
        ],
    ),
    (
        "paths.bond-flows-help",
        [
            "several connections for one copy (NFS with nconnect, SMB multichannel, several sessions of iSCSI); one connection is never faster than one member",
            "1つのコピーに複数の接続を使います（NFS の nconnect、SMB マルチチャネル、iSCSI の複数セッション）。1接続が1メンバーより速くなることはありません",
            "복사 하나에 연결을 여러 개 씁니다(NFS nconnect, SMB 멀티채널, iSCSI 다중 세션). 연결 하나는 멤버 하나보다 빨라지지 않습니다",
        ],
    ),
    (
        "paths.bond-switch-help",
        [
            "at the switch, choose by addresses and ports for this group, and use several connections for one copy",
            "スイッチでこのグループの分散方法をアドレスとポート（L3+L4）にし、1つのコピーに複数の接続を使います",
            "스위치에서 이 그룹의 분산 방식을 주소와 포트(L3+L4)로 바꾸고 복사 하나에 연결을 여러 개 씁니다",
        ],
    ),
    (
        "paths.bond-no-partner",
        [
            "{bond}: the switch does not answer LACP, so one of {members} members carries all",
            "{bond}：スイッチが LACP に応答せず、{members} メンバーのうち1つだけが通信しています",
            "{bond}: 스위치가 LACP에 응답하지 않아 멤버 {members}개 중 하나만 전송합니다",
        ],
    ),
    (
        "paths.bond-few",
        [
            "{bond}: {ports} of {members} members work together; the others are idle",
            "{bond}：{members} メンバーのうち {ports} だけが束ねられ、残りは遊んでいます",
            "{bond}: 멤버 {members}개 중 {ports}개만 함께 동작하고 나머지는 쉽니다",
        ],
    ),
    (
        "paths.bond-partner-help",
        [
            "the same group with LACP for these ports at the switch, all at one speed",
            "スイッチ側で同じポート群を同じ速度の LACP グループにします",
            "스위치에서 해당 포트를 같은 속도의 LACP 그룹으로 묶습니다",
        ],
    ),
    (
        "paths.bond-layer2",
        [
            "{bond} chooses among {members} members by the other end's hardware address, and knows one only: everything goes by one member",
            "{bond} は相手の MAC アドレスで {members} メンバーから選びますが、相手は1つだけです。すべて1メンバーを通ります",
            "{bond}은(는) 상대 MAC 주소로 멤버 {members}개 중에서 고르지만 상대가 하나뿐입니다. 모두 한 멤버로 갑니다",
        ],
    ),
    (
        "paths.bond-hash-help",
        [
            "choose by addresses and ports (layer3+4), so that several connections of {bond} use several members; one copy alone is not faster",
            "アドレスとポート（layer3+4）で選ぶようにします。{bond} の複数接続が複数メンバーを使います（1本のコピーは速くなりません）",
            "주소와 포트(layer3+4)로 고르게 합니다. {bond}의 여러 연결이 여러 멤버를 씁니다(복사 하나만으로는 빨라지지 않습니다)",
        ],
    ),
    (
        "paths.one-subnet",
        [
            "{used} and {unused} have addresses in {subnet}: the kernel sends to it by {used} alone, and {unused} adds nothing",
            "{used} と {unused} は同じサブネット {subnet} にあります。カーネルは {used} だけで送信し、{unused} は速度に寄与しません",
            "{used}와(과) {unused}은(는) 같은 서브넷 {subnet}에 있습니다. 커널은 {used}(으)로만 보내며 {unused}은(는) 속도에 보탬이 되지 않습니다",
        ],
    ),
    (
        "paths.second-subnet-help",
        [
            "give {nic}, and its counterpart at the other end, addresses of a subnet of their own",
            "{nic} とその相手側に別のサブネットのアドレスを与えます",
            "{nic}과(와) 그 상대쪽에 별도 서브넷의 주소를 줍니다",
        ],
    ),
    (
        "paths.rules-help",
        [
            "or a routing rule: what comes from the address of {nic} leaves by it (ip rule del, ip route del take it back)",
            "またはポリシールーティング：{nic} のアドレス発の通信は {nic} から出します（ip rule del と ip route del で元に戻せます）",
            "또는 정책 라우팅: {nic} 주소에서 나가는 것은 {nic}(으)로 보냅니다(ip rule del, ip route del로 되돌립니다)",
        ],
    ),
    (
        "paths.subnet-ruled",
        [
            "{nics} interfaces share {subnet}, and each of them is used (by rules, by a shared route, or by programs that bind to it)",
            "{nics} 個のインターフェースが {subnet} を共有し、それぞれ使われています（ルール、共有経路、またはバインドするプログラム）",
            "인터페이스 {nics}개가 {subnet}을(를) 공유하며 각각 사용됩니다(규칙, 공유 경로, 또는 바인드하는 프로그램)",
        ],
    ),
    (
        "paths.subnets-fine",
        [
            "{nics} subnets, and one interface in each: all of them are used",
            "サブネット {nics} 個に1つずつインターフェースがあり、すべて使われます",
            "서브넷 {nics}개마다 인터페이스가 하나씩 있어 모두 사용됩니다",
        ],
    ),
    (
        "paths.smb-one",
        [
            "{mount} (SMB) uses one connection, though {nics} could carry it together: no multichannel was asked for",
            "{mount}（SMB）は1接続です。{nics} を同時に使えますが、multichannel が指定されていません",
            "{mount}(SMB)은(는) 연결 하나만 씁니다. {nics}을(를) 함께 쓸 수 있지만 multichannel이 지정되지 않았습니다",
        ],
    ),
    (
        "paths.smb-refused",
        [
            "{mount} (SMB) was mounted for {channels} channels and has one: the server offers no second interface",
            "{mount}（SMB）は {channels} チャネルを要求しましたが1つだけです。サーバーが2つ目のインターフェースを提示していません",
            "{mount}(SMB)은(는) 채널 {channels}개를 요청했지만 하나뿐입니다. 서버가 두 번째 인터페이스를 제시하지 않습니다",
        ],
    ),
    (
        "paths.smb-fine",
        [
            "{mount} (SMB) asked for {channels} channels, and has {extra} besides the first",
            "{mount}（SMB）は {channels} チャネルを要求し、最初のほかに {extra} 本あります",
            "{mount}(SMB)은(는) 채널 {channels}개를 요청했고 첫 번째 외에 {extra}개가 있습니다",
        ],
    ),
    (
        "paths.smb-server-off",
        [
            "this Samba server has multichannel off, though {nics} could carry its shares together",
            "この Samba サーバーは multichannel が無効です。{nics} を同時に使えます",
            "이 Samba 서버는 multichannel이 꺼져 있습니다. {nics}을(를) 함께 쓸 수 있습니다",
        ],
    ),
    (
        "paths.smb-help",
        [
            "mount with multichannel,max_channels=2, each interface in a subnet of its own",
            "multichannel,max_channels=2 でマウントし、各インターフェースを別サブネットにします",
            "multichannel,max_channels=2로 마운트하고 각 인터페이스를 별도 서브넷에 둡니다",
        ],
    ),
    (
        "paths.smb-server-help",
        [
            "in the server's smb.conf: server multi channel support = yes, and interfaces = \"ADDRESS;speed=2500000000,capability=RSS\" for each interface",
            "サーバーの smb.conf に server multi channel support = yes と、各インターフェースの interfaces = \"アドレス;speed=2500000000,capability=RSS\" を書きます",
            "서버의 smb.conf에 server multi channel support = yes와 인터페이스마다 interfaces = \"주소;speed=2500000000,capability=RSS\"를 씁니다",
        ],
    ),
    (
        "paths.mptcp-unused",
        [
            "no connection has used MPTCP, of which {paths} paths could make one ({connections})",
            "MPTCP を使った接続はありません（{connections}）。経路は {paths} 本あります",
            "MPTCP를 사용한 연결이 없습니다({connections}). 경로는 {paths}개입니다",
        ],
    ),
    (
        "paths.mptcp-fine",
        [
            "MPTCP: {connections} connections over {paths} paths were joined by {joins} further subflows",
            "MPTCP：{paths} 経路の {connections} 接続に {joins} 本のサブフローが追加されました",
            "MPTCP: 경로 {paths}개의 연결 {connections}개에 서브플로 {joins}개가 추가되었습니다",
        ],
    ),
    (
        "paths.mptcp-no-endpoints",
        [
            "{connections} connections use MPTCP, and each has one path though there are {paths}: no endpoints are set",
            "MPTCP 接続が {connections} 本ありますが、経路が {paths} 本あるのにどれも1経路です。エンドポイントが設定されていません",
            "MPTCP 연결이 {connections}개 있지만 경로가 {paths}개인데도 모두 한 경로만 씁니다. 엔드포인트가 설정되지 않았습니다",
        ],
    ),
    (
        "paths.mptcp-no-joins",
        [
            "{connections} connections use MPTCP, endpoints are set, {paths} paths are there, and no second subflow has ever been joined",
            "MPTCP 接続が {connections} 本、経路が {paths} 本あり、エンドポイントも設定済みですが、2本目のサブフローが一度も成立していません",
            "MPTCP 연결 {connections}개, 경로 {paths}개가 있고 엔드포인트도 설정되었지만 두 번째 서브플로가 한 번도 맺어지지 않았습니다",
        ],
    ),
    (
        "paths.mptcp-endpoints-help",
        [
            "give MPTCP the other addresses (subflow: this end opens paths from it; signal: it is told to the other end); ip mptcp endpoint flush takes it back",
            "MPTCP に他のアドレスを与えます（subflow：こちらから開く、signal：相手に知らせる）。ip mptcp endpoint flush で元に戻せます",
            "MPTCP에 다른 주소를 알려줍니다(subflow: 이쪽에서 엶, signal: 상대에게 알림). ip mptcp endpoint flush로 되돌립니다",
        ],
    ),
    (
        "paths.mptcp-limits-help",
        [
            "let each end have further subflows and make use of the other's addresses; see that each address reaches the other end by its own interface, and that the server listens at all of its addresses",
            "両端で追加サブフローと相手アドレスの利用を許可し、各アドレスが自分のインターフェースから相手に届くこと、サーバーが全アドレスで待ち受けていることを確かめます",
            "양쪽에서 추가 서브플로와 상대 주소 사용을 허용하고 각 주소가 자기 인터페이스로 상대에 닿는지, 서버가 모든 주소에서 수신 대기하는지 확인합니다",
        ],
    ),
    (
        "paths.mptcp-fell-back",
        [
            "{fallen} connections asked for MPTCP and got plain TCP; {connections} got it",
            "MPTCP を要求した {fallen} 接続が通常の TCP になりました（成立は {connections}）",
            "MPTCP를 요청한 연결 {fallen}개가 일반 TCP가 되었습니다(성립 {connections}개)",
        ],
    ),
    (
        "paths.mptcp-fell-back-help",
        [
            "the other end has no MPTCP, or something on the way removes its option",
            "相手が MPTCP に対応していないか、途中の機器がオプションを削除しています",
            "상대가 MPTCP를 지원하지 않거나 중간 장비가 옵션을 제거합니다",
        ],
    ),
    (
        "paths.nfs-one",
        [
            "{mount} (NFS) has one TCP connection over {nic} ({speed}): {connections} core does all of its network work",
            "{mount}（NFS）は {nic}（{speed}）上の TCP 接続が {connections} 本だけで、1コアが通信処理をすべて担います",
            "{mount}(NFS)은(는) {nic}({speed})에서 TCP 연결이 {connections}개뿐이라 코어 하나가 통신 처리를 모두 맡습니다",
        ],
    ),
    (
        "paths.nfs-fine",
        [
            "{mount} (NFS) has {connections} connection(s) over {nic} ({speed}): their number is not the bound",
            "{mount}（NFS）は {nic}（{speed}）上に {connections} 接続：接続数はボトルネックではありません",
            "{mount}(NFS)은(는) {nic}({speed})에 연결 {connections}개: 연결 수는 병목이 아닙니다",
        ],
    ),
    (
        "paths.nfs-help",
        [
            "mount with nconnect=8, after unmounting every mount of that server",
            "そのサーバーのマウントをすべて外してから nconnect=8 でマウントします",
            "그 서버의 마운트를 모두 해제한 뒤 nconnect=8로 마운트합니다",
        ],
    ),
    (
        "paths.nfsd-few",
        [
            "this host serves NFS with {threads} threads on {cores} cores: further requests wait in line",
            "このホストは {cores} コアで NFS サーバーのスレッドが {threads} 本だけです。超えた要求は待たされます",
            "이 호스트는 코어 {cores}개에 NFS 서버 스레드가 {threads}개뿐입니다. 나머지 요청은 대기합니다",
        ],
    ),
    (
        "paths.nfsd-fine",
        [
            "this host serves NFS with {threads} threads on {cores} cores: threads are not the bound",
            "このホストの NFS サーバーは {cores} コアに {threads} スレッド：スレッド数はボトルネックではありません",
            "이 호스트의 NFS 서버는 코어 {cores}개에 스레드 {threads}개: 스레드 수는 병목이 아닙니다",
        ],
    ),
    (
        "paths.nfsd-help",
        [
            "{cores} threads instead of {threads} (in /etc/nfs.conf for good)",
            "{threads} から {cores} スレッドへ増やします（恒久設定は /etc/nfs.conf）",
            "스레드를 {threads}개에서 {cores}개로 늘립니다(영구 설정은 /etc/nfs.conf)",
        ],
    ),
    (
        "paths.send-window",
        [
            "TCP's largest send buffer carries {carries} to {peer} (round trip {ms} ms), and the line {speed}",
            "TCP の最大送信バッファでは {peer}（往復 {ms} ms）へ {carries} までです。回線は {speed} です",
            "TCP 최대 송신 버퍼로는 {peer}(왕복 {ms} ms)까지 {carries}입니다. 회선은 {speed}입니다",
        ],
    ),
    (
        "paths.receive-window",
        [
            "TCP's largest receive window carries {carries} from {peer} (round trip {ms} ms), and the line {speed}",
            "TCP の最大受信ウィンドウでは {peer}（往復 {ms} ms）から {carries} までです。回線は {speed} です",
            "TCP 최대 수신 윈도로는 {peer}(왕복 {ms} ms)에서 {carries}까지입니다. 회선은 {speed}입니다",
        ],
    ),
    (
        "paths.window-help",
        [
            "up to {bytes} bytes, twice what is under way at full speed",
            "最大 {bytes} バイトにします（全速時に伝送中となる量の2倍）",
            "최대 {bytes}바이트로 늘립니다(전속력일 때 전송 중인 양의 두 배)",
        ],
    ),
    (
        "paths.window-fine",
        [
            "TCP's windows ({bytes} bytes) fill {nic} ({speed}) over round trips of up to {ms} ms; the longest that was measured of a bulk transfer is {measured} ms, to {peer}",
            "TCP ウィンドウ（{bytes} バイト）は往復 {ms} ms まで {nic}（{speed}）を満たせます。大量転送で測定された最長の往復時間は {peer} との {measured} ms です",
            "TCP 윈도({bytes}바이트)는 왕복 {ms} ms까지 {nic}({speed})의 속도를 모두 쓸 수 있습니다. 대량 전송에서 측정된 가장 긴 왕복 시간은 {peer}까지 {measured} ms입니다",
        ],
    ),
    (
        "paths.window-unmeasured",
        [
            "TCP's windows ({bytes} bytes) fill {nic} ({speed}) over round trips of up to {ms} ms, as in one building; no bulk transfer is there whose round trip was measured, so a longer one is not judged",
            "TCP ウィンドウ（{bytes} バイト）は、同じ建物内のような往復 {ms} ms まで {nic}（{speed}）を満たせます。往復時間が測定された大量転送がないため、それより長い往復については判定していません",
            "TCP 윈도({bytes}바이트)는 한 건물 안처럼 왕복 {ms} ms까지 {nic}({speed})의 속도를 모두 쓸 수 있습니다. 왕복 시간이 측정된 대량 전송이 없으므로 그보다 긴 왕복은 판단하지 않습니다",
        ],
    ),
    (
        "paths.usb-slow",
        [
            "{nic} ({speed}) is at a USB line of {usb}, which carries some {useful}",
            "{nic}（{speed}）は {usb} の USB に接続され、実効は約 {useful} です",
            "{nic}({speed})은(는) {usb} USB에 연결되어 실제로는 약 {useful}입니다",
        ],
    ),
    (
        "paths.usb-latency",
        [
            "{nic} is at USB ({usb}, some {useful} of use): its speed fits, and each round trip takes about 20 µs longer than at PCIe",
            "{nic} は USB（{usb}、実効約 {useful}）接続です。速度は足りますが、往復が PCIe より約 20 µs 長くなります",
            "{nic}은(는) USB({usb}, 실효 약 {useful})에 연결되어 있습니다. 속도는 충분하지만 왕복이 PCIe보다 약 20 µs 깁니다",
        ],
    ),
    (
        "paths.usb-shared",
        [
            "{nics} ({sum} together) share one USB line of {usb}",
            "{nics}（合計 {sum}）が1本の USB（{usb}）を共有しています",
            "{nics}(합계 {sum})이(가) USB 한 회선({usb})을 공유합니다",
        ],
    ),
    (
        "paths.usb-help",
        [
            "a card in a PCIe slot, or a port of USB of its own that is fast enough",
            "PCIe スロットのカード、または十分速い専用の USB ポートを使います",
            "PCIe 슬롯의 카드나 충분히 빠른 전용 USB 포트를 사용합니다",
        ],
    ),
    (
        "paths.cloud-now",
        [
            "the provider held back {packets} packets of {nic} in {seconds} s because of the instance's limit {limit}",
            "クラウド事業者がインスタンスの上限 {limit} により {nic} の {packets} パケットを {seconds} 秒間に制限しました",
            "클라우드 사업자가 인스턴스 한도 {limit} 때문에 {nic}의 패킷 {packets}개를 {seconds}초 동안 제한했습니다",
        ],
    ),
    (
        "paths.cloud-before",
        [
            "since the driver was started the provider held back {packets} packets of {nic} because of the instance's limit {limit}; now it does not",
            "ドライバー起動後、クラウド事業者がインスタンスの上限 {limit} により {nic} の {packets} パケットを制限しました（現在は発生していません）",
            "드라이버 시작 이후 클라우드 사업자가 인스턴스 한도 {limit} 때문에 {nic}의 패킷 {packets}개를 제한했습니다(지금은 아님)",
        ],
    ),
    (
        "paths.cloud-fine",
        [
            "the provider has held back no packet of {nic}",
            "クラウド事業者は {nic} のパケットを制限していません",
            "클라우드 사업자가 {nic}의 패킷을 제한한 적이 없습니다",
        ],
    ),
    (
        "paths.cloud-help",
        [
            "nothing on this host helps: a larger instance, or less traffic of that kind",
            "このホスト側の対処はありません。大きいインスタンスにするか、その種の通信を減らします",
            "이 호스트에서는 해결할 수 없습니다. 더 큰 인스턴스를 쓰거나 해당 트래픽을 줄입니다",
        ],
    ),
];
