//! Words of the report itself.

use super::Row;

/// Sentences of the report itself, by their keys.
pub const ROWS: &[Row] = &[
    (
        "doctor.none",
        [
            "Nothing found that bounds this host.",
            "このホストを制限しているものは見つかりませんでした。",
            "이 호스트를 제한하는 요소를 찾지 못했습니다.",
        ],
    ),
    ("doctor.evidence", ["shown by", "根拠", "근거"]),
    ("doctor.remedy", ["what helps", "対処", "조치"]),
    ("doctor.error", ["{count} error", "エラー {count} 件", "오류 {count}건"]),
    ("doctor.errors", ["{count} errors", "エラー {count} 件", "오류 {count}건"]),
    ("doctor.warning", ["{count} warning", "警告 {count} 件", "경고 {count}건"]),
    ("doctor.warnings", ["{count} warnings", "警告 {count} 件", "경고 {count}건"]),
    ("doctor.note", ["{count} note", "参考 {count} 件", "참고 {count}건"]),
    ("doctor.notes", ["{count} notes", "参考 {count} 件", "참고 {count}건"]),
    ("doctor.looked-one", ["{count} check looked", "{count} 項目を検査", "{count}개 항목 검사"]),
    ("doctor.looked", ["{count} checks looked", "{count} 項目を検査", "{count}개 항목 검사"]),
    (
        "doctor.head",
        [
            "{found}; {looked}, {nothing} had nothing to look at.",
            "{found}。{looked}、対象なし {nothing} 項目。",
            "{found}. {looked}, 대상 없음 {nothing}개.",
        ],
    ),
    (
        "doctor.head-hidden",
        [
            "{found}; {looked}, {nothing} had nothing to look at, {hidden} could not look.",
            "{found}。{looked}、対象なし {nothing} 項目、確認できず {hidden} 項目。",
            "{found}. {looked}, 대상 없음 {nothing}개, 확인 불가 {hidden}개.",
        ],
    ),
    (
        "doctor.none-counted",
        [
            "{none} {looked}, {nothing} had nothing to look at.",
            "{none}{looked}、対象なし {nothing} 項目。",
            "{none} {looked}, 대상 없음 {nothing}개.",
        ],
    ),
    (
        "doctor.none-seen-one",
        [
            "Nothing found in what could be seen; {hidden} check could not look. {looked}, {nothing} had nothing to look at.",
            "確認できた範囲では何も見つかりませんでした。{hidden} 項目は確認できていません。{looked}、対象なし {nothing} 項目。",
            "확인할 수 있는 범위에서는 아무것도 찾지 못했습니다. {hidden}개 항목은 확인하지 못했습니다. {looked}, 대상 없음 {nothing}개.",
        ],
    ),
    (
        "doctor.none-seen",
        [
            "Nothing found in what could be seen; {hidden} checks could not look. {looked}, {nothing} had nothing to look at.",
            "確認できた範囲では何も見つかりませんでした。{hidden} 項目は確認できていません。{looked}、対象なし {nothing} 項目。",
            "확인할 수 있는 범위에서는 아무것도 찾지 못했습니다. {hidden}개 항목은 확인하지 못했습니다. {looked}, 대상 없음 {nothing}개.",
        ],
    ),
    (
        "doctor.none-here",
        [
            "No check has found anything to look at on this host.",
            "このホストには検査の対象がありませんでした。",
            "이 호스트에는 검사할 대상이 없었습니다.",
        ],
    ),
    ("doctor.fine", ["Ruled out", "問題なしと確認したもの", "문제없음을 확인한 것"]),
    (
        "doctor.fine-one",
        [
            "Ruled out: {count} check (--verbose lists it)",
            "問題なしと確認: {count} 項目 (--verbose で表示)",
            "문제없음을 확인: {count}개 항목 (--verbose로 표시)",
        ],
    ),
    (
        "doctor.fine-count",
        [
            "Ruled out: {count} checks (--verbose lists them)",
            "問題なしと確認: {count} 項目 (--verbose で表示)",
            "문제없음을 확인: {count}개 항목 (--verbose로 표시)",
        ],
    ),
    ("doctor.hidden", ["Could not be seen", "確認できなかったもの", "확인할 수 없었던 것"]),
    ("doctor.as-root", ["run it as root", "root で実行してください", "root 권한으로 실행하십시오"]),
    (
        "doctor.even-as-root",
        [
            "even root could not read it here; in a container, look on the host itself",
            "root でも読めませんでした。コンテナ内の場合はホスト側で確認してください",
            "root로도 읽을 수 없었습니다. 컨테이너라면 호스트에서 직접 확인하십시오",
        ],
    ),
    (
        "doctor.record-lacks",
        [
            "the record lacks it; a record that root makes on that host may have it",
            "この記録には含まれていません。そのホストの root が作成した記録には含まれる場合があります",
            "이 기록에는 없습니다. 해당 호스트에서 root가 만든 기록에는 있을 수 있습니다",
        ],
    ),
    ("severity.error", ["ERROR", "エラー", "오류"]),
    ("severity.warning", ["warning", "警告", "경고"]),
    ("severity.note", ["note", "参考", "참고"]),
    ("confidence.certain", ["certain", "確実", "확실"]),
    ("confidence.computed", ["computed", "計算値", "계산값"]),
    ("confidence.likely", ["likely", "推定", "추정"]),
];
