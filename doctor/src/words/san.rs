//! Words of the checks of paths to disks and of storage networks.

use super::Row;

/// Sentences of these checks, by their keys.
pub const ROWS: &[Row] = &[
    (
        "san.paths-down",
        [
            "Paths to {disk} that are down: {paths}; {up} of {all} are up.",
            "{disk} へのパスのうち、使えないもの：{paths}（使用可能 {up} / 全 {all}）。",
            "{disk}의 경로 중 끊긴 것: {paths}. 전체 {all}개 중 {up}개가 살아 있습니다.",
        ],
    ),
    (
        "san.paths-help",
        [
            "look at the cable, the port and the storage behind the path; multipath -ll, or nvme list-subsys, shows all",
            "そのパスのケーブル、ポート、ストレージを確認してください。multipath -ll または nvme list-subsys で全体を表示できます",
            "그 경로의 케이블, 포트, 스토리지를 확인하십시오. multipath -ll 또는 nvme list-subsys로 모두 볼 수 있습니다",
        ],
    ),
    (
        "san.one-path",
        [
            "{disk} lies in a storage network and is reached by one path ({path}): nothing takes over when it fails, and no other shares the load.",
            "{disk} はストレージネットワーク上にあり、パスは 1 本（{path}）だけです。故障時に引き継ぐものも、負荷を分け合うものもありません。",
            "{disk}: 스토리지 네트워크에 있는데 경로가 하나({path})뿐입니다. 고장 나면 이어받을 경로가 없고, 부하를 나눌 경로도 없습니다.",
        ],
    ),
    (
        "san.one-path-help",
        [
            "connect a second path by another port, where the storage has one",
            "ストレージに別のポートがあれば、2 本目のパスを接続してください",
            "스토리지에 다른 포트가 있으면 두 번째 경로를 연결하십시오",
        ],
    ),
    (
        "san.uneven",
        [
            "{share} of the {speed}/s of {disk} went by {path}; the storage calls {others} as good (active/optimized), and little went there.",
            "{disk} の {speed}/s のうち {share} が {path} を通りました。ストレージは {others} も同等（active/optimized）としていますが、ほとんど使われていません。",
            "{disk}의 {speed}/s 중 {share}가 {path} 경로로 갔습니다. 스토리지는 {others} 경로도 똑같이 좋다고(active/optimized) 알리지만 거의 쓰이지 않았습니다.",
        ],
    ),
    (
        "san.uneven-help",
        [
            "spread requests over all paths of a group: path_grouping_policy group_by_prio and path_selector 'service-time 0' in /etc/multipath.conf",
            "グループ内の全パスに要求を分散してください：/etc/multipath.conf の path_grouping_policy group_by_prio と path_selector 'service-time 0'",
            "그룹의 모든 경로에 요청을 나누십시오. /etc/multipath.conf의 path_grouping_policy group_by_prio와 path_selector 'service-time 0'",
        ],
    ),
    (
        "san.policy",
        [
            "{disk} has several paths that are as good ({paths}), and the policy numa: each node of this host uses one of them, and on a host of one node the others stay idle.",
            "{disk} には同等のパスが複数（{paths}）ありますが、ポリシーは numa です。ホストの各ノードは 1 本だけを使い、ノードが 1 つのホストでは残りが遊びます。",
            "{disk}: 똑같이 좋은 경로가 여럿({paths}) 있지만 정책이 numa입니다. 호스트의 노드마다 하나만 쓰며, 노드가 하나인 호스트에서는 나머지가 놉니다.",
        ],
    ),
    (
        "san.policy-help",
        [
            "use all of them: round-robin, or queue-depth from Linux 6.11 on",
            "すべてを使うようにしてください：round-robin、または Linux 6.11 以降の queue-depth",
            "모두 쓰게 하십시오. round-robin 또는 Linux 6.11부터는 queue-depth",
        ],
    ),
    (
        "san.paths-fine",
        [
            "Paths: {disks} disks or subsystems with {paths} paths; the kernel calls none of these down.",
            "パス：ディスクまたはサブシステム {disks} 個、パス {paths} 本。カーネルが使用不可としているものはありません。",
            "경로: 디스크 또는 서브시스템 {disks}개, 경로 {paths}개. 커널이 끊겼다고 하는 것은 없습니다.",
        ],
    ),
    (
        "san.session-down",
        [
            "{down} of {all} sessions to the iSCSI target {target} are down ({state}).",
            "iSCSI ターゲット {target} へのセッション {all} 個のうち {down} 個が切れています（{state}）。",
            "iSCSI 대상 {target}에 대한 세션 {all}개 중 {down}개가 끊겨 있습니다({state}).",
        ],
    ),
    (
        "san.session-help",
        [
            "see whether the portal can be reached; iscsiadm -m session -P 1 shows it",
            "ポータルに到達できるか確認してください。iscsiadm -m session -P 1 で表示できます",
            "포털에 연결할 수 있는지 확인하십시오. iscsiadm -m session -P 1로 볼 수 있습니다",
        ],
    ),
    (
        "san.one-session",
        [
            "The iSCSI target {target} has one session, while {lines} lines of this host are up: one line carries all of its traffic, and nothing takes over when that fails.",
            "このホストでは {lines} 本の回線が使えますが、iSCSI ターゲット {target} のセッションは 1 つです。全通信が 1 本の回線を通り、故障時に引き継ぐものがありません。",
            "이 호스트의 회선 {lines}개가 살아 있지만 iSCSI 대상 {target}의 세션은 하나입니다. 모든 통신이 회선 하나로 가고, 고장 나면 이어받을 것이 없습니다.",
        ],
    ),
    (
        "san.one-session-help",
        [
            "log in to a second portal of the target by another interface, with multipathd running",
            "multipathd を動かした上で、別のインターフェースからターゲットの 2 つ目のポータルにログインしてください",
            "multipathd를 실행한 상태에서 다른 인터페이스로 대상의 두 번째 포털에 로그인하십시오",
        ],
    ),
    (
        "san.one-portal",
        [
            "All {sessions} sessions to the iSCSI target {target} go to its portal {portal}: that port's line bounds them together, and when it fails all of them do.",
            "iSCSI ターゲット {target} へのセッション {sessions} 個は、すべて同じポータル {portal} に接続しています。そのポートの回線が全体の上限となり、故障するとすべて切れます。",
            "iSCSI 대상 {target}에 대한 세션 {sessions}개가 모두 같은 포털 {portal} 주소로 연결되어 있습니다. 그 포트의 회선이 전체의 한계가 되고, 고장 나면 모두 끊깁니다.",
        ],
    ),
    (
        "san.port-down",
        [
            "The Fibre Channel port {port} is down ({state}), while {other} is up: one path fewer, if it is meant to be used.",
            "Fibre Channel ポート {port} が使用できません（{state}）。{other} は稼働しています。使うつもりのポートなら、パスが 1 本少ない状態です。",
            "Fibre Channel 포트 {port}: 끊겨 있습니다({state}). {other} 포트는 살아 있습니다. 쓰려던 포트라면 경로가 하나 적은 셈입니다.",
        ],
    ),
    (
        "san.port-help",
        [
            "look at the cable, the optics and the switch's port; one that is not used needs nothing",
            "ケーブル、光モジュール、スイッチのポートを確認してください。使っていないポートなら対処は不要です",
            "케이블, 광 모듈, 스위치 포트를 확인하십시오. 쓰지 않는 포트라면 조치할 것이 없습니다",
        ],
    ),
    (
        "san.port-slow",
        [
            "The Fibre Channel port {port} runs at {now} Gbit/s and can do {most}.",
            "Fibre Channel ポート {port} は {now} Gbit/s で動作していますが、{most} Gbit/s まで可能です。",
            "Fibre Channel 포트 {port}: {now} Gbit/s로 동작하지만 {most} Gbit/s까지 가능합니다.",
        ],
    ),
    (
        "san.port-slow-help",
        [
            "see whether the other end or its optics can do no more, or its speed is set by hand",
            "相手側や光モジュールの上限なのか、速度が手動で固定されているのかを確認してください",
            "상대 쪽이나 광 모듈의 한계인지, 속도가 수동으로 고정되어 있는지 확인하십시오",
        ],
    ),
    (
        "san.links-fine",
        [
            "Storage network: {sessions} sessions of iSCSI and {ports} ports of Fibre Channel, none of which was found down beside others that are up.",
            "ストレージネットワーク：iSCSI セッション {sessions} 個、Fibre Channel ポート {ports} 個。他が稼働しているのに切れているものはありませんでした。",
            "스토리지 네트워크: iSCSI 세션 {sessions}개, Fibre Channel 포트 {ports}개. 다른 것은 살아 있는데 끊긴 것은 없었습니다.",
        ],
    ),
];
