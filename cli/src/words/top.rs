//! Words of `forebay top`.

use super::Row;

/// Sentences of `forebay top`, by their keys. Heads of columns are short: with the names all of them fit into 80 columns.
pub const ROWS: &[Row] = &[
    (
        "top.head",
        [
            "forebay {version} on {node}  up {uptime}",
            "forebay {version}  {node}  稼働 {uptime}",
            "forebay {version}  {node}  가동 {uptime}",
        ],
    ),
    ("top.cpu", ["cpu {share} %", "CPU {share} %", "CPU {share} %"]),
    ("top.memory", ["memory {size}", "メモリ {size}", "메모리 {size}"]),
    ("top.dirty", ["dirty {size}", "ダーティ {size}", "더티 {size}"]),
    ("top.nodes", ["{count} nodes", "ノード {count}", "노드 {count}개"]),
    ("top.paused", ["PAUSED", "一時停止中", "일시 정지됨"]),
    (
        "top.lost",
        [
            "the daemon does not answer, trying again: {why}",
            "デーモンが応答しません。再試行しています: {why}",
            "데몬이 응답하지 않습니다. 다시 시도하는 중입니다: {why}",
        ],
    ),
    (
        "top.other-version",
        [
            "the daemon does not answer, trying again: it is of another version, use its own forebay binary: {why}",
            "デーモンのバージョンが異なります。デーモンと同じ版の forebay を使ってください: {why}",
            "데몬의 버전이 다릅니다. 데몬과 같은 버전의 forebay를 사용하십시오: {why}",
        ],
    ),
    (
        "top.degraded",
        ["{what}: {text} ({since})", "{what}: {text}（{since} 前から）", "{what}: {text}({since} 전부터)"],
    ),
    ("top.more", ["and {count} more", "ほか {count} 件", "그 외 {count}건"]),
    (
        "top.gone",
        ["there is no volume {name} any more", "ボリューム {name} はもうありません", "더 이상 없는 볼륨입니다: {name}"],
    ),
    ("top.waiting", ["waiting for the daemon", "デーモンを待っています", "데몬을 기다리는 중입니다"]),
    ("top.no-volumes", ["there is no volume yet", "ボリュームはまだありません", "아직 볼륨이 없습니다"]),
    (
        "top.no-match",
        ["no volume has that in its name", "この名前を含むボリュームはありません", "이 이름이 들어간 볼륨이 없습니다"],
    ),
    ("top.foot.filter", ["filter: {filter}_", "絞り込み: {filter}_", "거르기: {filter}_"]),
    ("top.foot.help", ["any key goes back  q quit", "どのキーでも戻る  q 終了", "아무 키나 뒤로  q 끝내기"]),
    (
        "top.foot.detail",
        [
            "Esc back  up, down: the next one  p pause  ? keys  q quit",
            "Esc 戻る  上, 下: 次のボリューム  p 一時停止  ? キー  q 終了",
            "Esc 뒤로  위, 아래: 다음 볼륨  p 일시 정지  ? 키  q 끝내기",
        ],
    ),
    (
        "top.foot.list",
        [
            "Enter more  s sort: {sort}  / filter{filter}  p pause  ? keys  q quit",
            "Enter 詳細  s 並べ替え: {sort}  / 絞り込み{filter}  p 一時停止  ? キー  q 終了",
            "Enter 자세히  s 정렬: {sort}  / 거르기{filter}  p 일시 정지  ? 키  q 끝내기",
        ],
    ),
    ("top.foot.reversed", ["{sort}, reversed", "{sort}、逆順", "{sort}, 역순"]),
    ("sort.name", ["name", "名前", "이름"]),
    ("sort.requests", ["requests", "要求数", "요청 수"]),
    ("sort.bytes", ["bytes", "バイト数", "바이트"]),
    ("sort.latency", ["latency", "遅延", "지연"]),
    ("sort.dirty", ["dirty", "ダーティ", "더티"]),
    ("sort.drain", ["drain", "排出", "비우기"]),
    ("top.key.choose", ["up, down, k, j", "上, 下, k, j", "위, 아래, k, j"]),
    ("top.key.enter", ["Enter", "Enter", "Enter"]),
    ("top.key.sort", ["s, r", "s, r", "s, r"]),
    ("top.key.filter", ["/", "/", "/"]),
    ("top.key.pause", ["p", "p", "p"]),
    ("top.key.quit", ["q, Ctrl-C", "q, Ctrl-C", "q, Ctrl-C"]),
    (
        "top.help.choose",
        [
            "choose a volume; also page up and down, home and end",
            "ボリュームを選ぶ。PageUp、PageDown、Home、End も使えます",
            "볼륨 선택. PageUp, PageDown, Home, End도 가능",
        ],
    ),
    (
        "top.help.enter",
        ["all about it; Esc goes back", "ボリュームの詳細。Esc で戻る", "볼륨의 자세한 정보. Esc로 돌아가기"],
    ),
    (
        "top.help.sort",
        [
            "sort by the next column; the other way round",
            "次の項目で並べ替え、逆順に並べ替え",
            "다음 항목으로 정렬, 반대 순서로 정렬",
        ],
    ),
    (
        "top.help.filter",
        [
            "show only names that have this in them; Esc ends it",
            "名前に入力した文字を含むものだけ表示。Esc で解除",
            "이름에 입력한 글자가 들어간 것만 표시. Esc로 해제",
        ],
    ),
    (
        "top.help.pause",
        [
            "pause: nothing moves until it is pressed again",
            "一時停止。もう一度押すまで表示が止まります",
            "일시 정지. 다시 누를 때까지 화면이 멈춤",
        ],
    ),
    ("top.help.quit", ["quit", "終了", "끝내기"]),
    (
        "top.help.p99",
        [
            "99 of 100 requests of clients in the last second were quicker",
            "直近 1 秒のクライアント要求の 99 % はこれより速い",
            "지난 1초 동안 클라이언트 요청의 99 %가 이보다 빨랐음",
        ],
    ),
    (
        "top.help.hit",
        [
            "share of read blocks that memory or the tier had; writes do not count",
            "メモリかティアにあった読み取りの割合。書き込みは除く",
            "메모리나 티어에 있던 읽기의 비율. 쓰기는 제외",
        ],
    ),
    (
        "top.help.drain",
        [
            "time that the slow storage needs for what is dirty",
            "ダーティな分を低速なストレージに書き終えるまでの時間",
            "더티 데이터를 느린 저장소에 모두 쓰는 데 걸리는 시간",
        ],
    ),
    ("top.column.volume", ["VOLUME", "名前", "이름"]),
    ("top.column.policy", ["POLICY", "ポリシー", "정책"]),
    ("top.column.reads", ["READ/s", "読取/s", "읽기/s"]),
    ("top.column.writes", ["WRITE/s", "書込/s", "쓰기/s"]),
    ("top.column.read", ["READ", "読取量", "읽은 양"]),
    ("top.column.written", ["WRITTEN", "書込量", "쓴 양"]),
    ("top.column.hit", ["HIT", "ヒット", "적중"]),
    ("top.column.p99", ["CLIENT P99", "遅延 P99", "지연 P99"]),
    ("top.column.dirty", ["DIRTY", "ダーティ", "더티"]),
    ("top.column.drain", ["DRAIN", "排出", "비우기"]),
    ("top.policy.through", ["through", "スルー", "라이트스루"]),
    ("top.policy.back", ["back", "バック", "라이트백"]),
    (
        "top.volume",
        [
            "{name}  {size}, {policy}, {phase}, {clients}",
            "{name}  {size}、{policy}、{phase}、{clients}",
            "{name}  {size}, {policy}, {phase}, {clients}",
        ],
    ),
    ("top.client", ["{count} client", "クライアント {count}", "클라이언트 {count}개"]),
    ("top.clients", ["{count} clients", "クライアント {count}", "클라이언트 {count}개"]),
    ("top.owner", [", owner {node}", "、オーナー {node}", ", 소유자 {node}"]),
    (
        "top.places",
        [
            "{tier} tier of {size}, {destage} destage; backing {backing} ({state})",
            "{tier}ティア {size}、デステージ {destage}、バッキング（{state}）{backing}",
            "{tier} 티어 {size}, 디스테이지: {destage}, 백킹: {backing}({state})",
        ],
    ),
    ("top.now", ["NOW", "現在", "현재"]),
    ("top.past", ["LAST {seconds} s", "直近 {seconds} 秒", "최근 {seconds}초"]),
    ("top.line.writes", ["writes/s", "書き込み/s", "쓰기/s"]),
    ("top.line.reads", ["reads/s", "読み取り/s", "읽기/s"]),
    ("top.line.written", ["written/s", "書き込み量/s", "쓴 양/s"]),
    ("top.line.read", ["read/s", "読み取り量/s", "읽은 양/s"]),
    ("top.line.hits", ["read hit rate", "読み取りヒット率", "읽기 적중률"]),
    ("top.line.dirty", ["dirty", "ダーティ", "더티"]),
    ("top.line.drain", ["to drain", "排出まで", "비우기까지"]),
    ("top.line.destage", ["to backing/s", "バッキングへ/s", "백킹으로/s"]),
    (
        "top.waits",
        [
            "dirty at most {most}, oldest {oldest}, {groups} groups wait, {writes} writes wait, {throttled} throttled/s",
            "ダーティ上限 {most}、最古 {oldest}、待機グループ {groups}、待機書き込み {writes}、抑制 {throttled}/s",
            "더티 한도 {most}, 가장 오래된 것 {oldest}, 대기 그룹 {groups}, 대기 쓰기 {writes}, 제한 {throttled}/s",
        ],
    ),
];
