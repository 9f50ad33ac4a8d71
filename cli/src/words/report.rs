//! Words of `forebay report`.

use super::Row;

/// Sentences of `forebay report`, by their keys.
pub const ROWS: &[Row] = &[
    ("report.written-to", ["the report is in {path}", "レポートの保存先: {path}", "보고서 저장 위치: {path}"]),
    (
        "report.title",
        [
            "forebay {version} on {node}, the last {window}, made {made}",
            "forebay {version}、{node}、直近 {window}、作成 {made}",
            "forebay {version}, {node}, 최근 {window}, 작성 {made}",
        ],
    ),
    ("report.writes", ["writes of clients", "クライアントの書き込み", "클라이언트의 쓰기"]),
    (
        "report.writes-kept",
        ["kept from the slow storage", "低速なストレージへの書き込みの削減", "느린 저장소 쓰기 절감"],
    ),
    ("report.write-bytes-kept", ["bytes of them", "削減したバイト数", "절감한 바이트 수"]),
    ("report.reads", ["reads of clients", "クライアントの読み取り", "클라이언트의 읽기"]),
    ("report.read-bytes-kept", ["bytes kept from it", "読まずに済んだバイト数", "읽지 않아도 된 바이트 수"]),
    ("report.wires-kept", ["kept from wires", "ノード間転送の削減", "노드 간 전송 절감"]),
    ("report.incidents", ["incidents", "警告とエラー", "경고와 오류"]),
    ("report.none", ["none", "なし", "없음"]),
    ("report.kind", ["{count} x {kind}", "{kind}: {count} 件", "{kind}: {count}건"]),
    (
        "report.nothing",
        ["nothing is known of it in this time", "この期間の記録はありません", "이 기간의 기록이 없습니다"],
    ),
    (
        "report.measured",
        [
            "measured for {time}: {reads} reads, {writes} writes",
            "測定時間 {time}: 読み取り {reads} 回、書き込み {writes} 回",
            "측정 시간 {time}: 읽기 {reads}회, 쓰기 {writes}회",
        ],
    ),
    (
        "report.kept",
        [
            "writes kept {writes}, of the bytes {bytes}",
            "書き込みの削減 {writes}、バイト数では {bytes}",
            "쓰기 절감 {writes}, 바이트 기준 {bytes}",
        ],
    ),
    ("report.median", ["median", "中央値", "중앙값"]),
    ("report.leg", ["{side} {place}", "{side} {place}", "{side} {place}"]),
    ("report.hits", ["read hit rate {ratio}", "読み取りヒット率 {ratio}", "읽기 적중률 {ratio}"]),
    ("report.not-known", ["not known", "不明", "알 수 없음"]),
    ("report.working-set", ["working set {size}", "ワーキングセット {size}", "워킹 세트 {size}"]),
    (
        "report.at",
        [
            "{times} x cache ({size}): {ratio}",
            "{times} 倍のキャッシュ ({size}): {ratio}",
            "{times}배의 캐시 ({size}): {ratio}",
        ],
    ),
    ("report.page.title", ["Forebay: what it did on {node}", "Forebay: {node} のレポート", "Forebay: {node} 보고서"]),
    (
        "report.page.head",
        [
            "What Forebay did on {node} in the last {window}",
            "{node} での Forebay の動作（直近 {window}）",
            "{node}에서의 Forebay 동작(최근 {window})",
        ],
    ),
    (
        "report.page.made",
        ["Made {made} by version {version}.", "{made} にバージョン {version} で作成。", "{made} 작성, 버전 {version}."],
    ),
    (
        "report.page.writes-kept",
        [
            "of {count} writes were kept from the slow storage",
            "書き込み {count} 回のうち、低速なストレージに書かずに済んだ割合",
            "쓰기 {count}회 중 느린 저장소에 쓰지 않아도 된 비율",
        ],
    ),
    (
        "report.page.write-bytes-kept",
        [
            "of {size} written were kept from it",
            "書き込み量 {size} のうち、低速なストレージに書かずに済んだ量",
            "쓴 양 {size} 중 느린 저장소에 쓰지 않아도 된 양",
        ],
    ),
    (
        "report.page.read-bytes-kept",
        [
            "of {size} read were found before it",
            "読み取り量 {size} のうち、低速なストレージを読まずに済んだ量",
            "읽은 양 {size} 중 느린 저장소를 읽지 않아도 된 양",
        ],
    ),
    (
        "report.page.wires-kept",
        ["were kept from wires by compression", "圧縮で削減したノード間転送量", "압축으로 줄인 노드 간 전송량"],
    ),
    (
        "report.page.journal",
        [
            "What the journal beside an image writes in sequence is not counted as a write to the slow storage.",
            "イメージの隣のジャーナルへのシーケンシャルな書き込みは、低速なストレージへの書き込みに数えません。",
            "이미지 옆의 저널에 순차적으로 쓰는 것은 느린 저장소 쓰기로 세지 않습니다.",
        ],
    ),
    ("report.page.volumes", ["Volumes, the busiest first", "ボリューム（要求の多い順）", "볼륨(요청이 많은 순)"]),
    ("report.page.volume", ["volume", "ボリューム", "볼륨"]),
    ("report.page.reads", ["reads", "読み取り", "읽기"]),
    ("report.page.writes", ["writes", "書き込み", "쓰기"]),
    ("report.page.written", ["written", "書き込み量", "쓴 양"]),
    ("report.page.destaged", ["to the slow storage", "低速なストレージへ", "느린 저장소로"]),
    ("report.page.hits", ["read hit rate", "読み取りヒット率", "읽기 적중률"]),
    (
        "report.page.nothing",
        ["Nothing is known of it in this time.", "この期間の記録はありません。", "이 기간의 기록이 없습니다."],
    ),
    (
        "report.page.measured",
        ["Measured for {time}, up to {end}.", "{end} までの {time} を測定。", "{end}까지 {time} 동안 측정."],
    ),
    (
        "report.page.latency",
        [
            "Latency: what clients waited, and what the slow storage takes",
            "遅延: クライアントの待ち時間と、低速なストレージの所要時間",
            "지연: 클라이언트의 대기 시간과 느린 저장소의 소요 시간",
        ],
    ),
    ("report.page.chart", ["Written", "書き込み量", "쓴 양"]),
    (
        "report.page.other-caches",
        ["What a cache of another size would hit", "別のキャッシュサイズでのヒット率", "다른 캐시 크기에서의 적중률"],
    ),
    ("report.page.count", ["measured", "回数", "횟수"]),
    ("report.page.half", ["half took less than", "中央値", "중앙값"]),
    ("report.page.leg", ["{side}, {place}", "{side}、{place}", "{side}, {place}"]),
    ("place.client", ["clients", "クライアント", "클라이언트"]),
    ("place.backing", ["slow storage", "低速なストレージ", "느린 저장소"]),
    (
        "report.page.bars",
        [
            "99th percentiles of latency; the table above has the figures",
            "遅延の 99 パーセンタイル。数値は上の表にあります",
            "지연의 99번째 백분위수. 수치는 위의 표에 있습니다",
        ],
    ),
    (
        "report.page.bars-below",
        [
            "99 of 100 took less; bars grow by powers of ten",
            "100 回中 99 回はこれより短時間。棒の長さは対数目盛",
            "100회 중 99회는 이보다 짧음. 막대 길이는 로그 눈금",
        ],
    ),
    (
        "report.page.rates",
        [
            "Bytes a second over time, at most {most} a second",
            "1 秒あたりのバイト数の推移、最大 {most}/s",
            "시간에 따른 초당 바이트 수, 최대 {most}/s",
        ],
    ),
    (
        "report.page.rates-below",
        [
            "solid: by clients; dashed: to the slow storage",
            "実線: クライアントから、破線: 低速なストレージへ",
            "실선: 클라이언트에서, 점선: 느린 저장소로",
        ],
    ),
    (
        "report.page.not-known",
        ["not known: too little was read", "不明（読み取りが少なすぎます）", "알 수 없음(읽기가 너무 적음)"],
    ),
    (
        "report.page.curve",
        [
            "Hit rate by size of the cache; the table below has the figures",
            "キャッシュサイズ別のヒット率。数値は下の表にあります",
            "캐시 크기별 적중률. 수치는 아래 표에 있습니다",
        ],
    ),
    (
        "report.page.curve-below",
        [
            "by size of the cache, which doubles with each equal step to the right; marks: times the cache that there is",
            "横軸: キャッシュサイズ（等間隔ごとに 2 倍）、印: 現在のキャッシュに対する倍率",
            "가로축: 캐시 크기(같은 간격마다 2배), 표시: 현재 캐시의 배수",
        ],
    ),
    ("report.page.times", ["{times} x", "{times} 倍", "{times}배"]),
    ("report.page.cache", ["cache", "キャッシュ", "캐시"]),
    ("report.page.size", ["size", "サイズ", "크기"]),
    ("report.page.hit-rate", ["hit rate", "ヒット率", "적중률"]),
    ("report.page.really", ["It has really hit: {ratio}.", "実際のヒット率: {ratio}。", "실제 적중률: {ratio}."]),
    ("report.page.working-set", ["Working set: {size}.", "ワーキングセット: {size}。", "워킹 세트: {size}."]),
    ("report.page.incidents", ["Incidents", "警告とエラー", "경고와 오류"]),
    ("report.page.none", ["None.", "ありません。", "없습니다."]),
    ("report.page.kind", ["{count} × {kind}", "{kind}: {count} 件", "{kind}: {count}건"]),
    ("report.page.when", ["when", "時刻", "시각"]),
    ("report.page.what", ["what", "種類", "종류"]),
];
