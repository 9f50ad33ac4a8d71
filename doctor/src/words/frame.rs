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
    ("doctor.fine", ["Not the bound", "ボトルネックではないもの", "병목이 아닌 것"]),
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
    ("severity.note", ["note", "注意", "참고"]),
    ("confidence.certain", ["certain", "確実", "확실"]),
    ("confidence.computed", ["computed", "計算値", "계산값"]),
    ("confidence.likely", ["likely", "推定", "추정"]),
];
