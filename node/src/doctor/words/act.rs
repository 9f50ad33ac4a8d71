//! Words of what is done about findings, of the baseline and of watching.

use super::Row;

/// Its rows.
pub const ROWS: &[Row] = &[
    ("act.became.kept", ["kept", "適用して維持", "적용 후 유지"]),
    ("act.became.awaits-confirmation", ["applied, awaits confirmation", "適用済み、確認待ち", "적용됨, 확인 대기"]),
    ("act.became.reverted", ["taken back", "元に戻しました", "되돌림"]),
    ("act.became.refused", ["not begun", "実行していません", "실행하지 않음"]),
    ("act.became.failed", ["failed, taken back", "失敗、元に戻しました", "실패, 되돌림"]),
    ("act.became.not-reverted", ["COULD NOT BE TAKEN BACK", "元に戻せませんでした", "되돌리지 못함"]),
    ("act.became.gone", ["gone already", "既に失われています", "이미 사라짐"]),
    (
        "act.gone",
        [
            "the check was run again and finds it no more",
            "再検査でこの問題は検出されなくなりました",
            "다시 검사한 결과 더 이상 발견되지 않습니다",
        ],
    ),
    (
        "act.better",
        [
            "the check was run again: still there, and better",
            "再検査でまだ残っていますが、改善しました",
            "다시 검사한 결과 아직 남아 있지만 나아졌습니다",
        ],
    ),
    (
        "act.not-better",
        [
            "the check was run again and is not better by a tenth of what is lacking, so the old values are back",
            "再検査で不足分の 1 割も改善しなかったため、元の値に戻しました",
            "다시 검사했으나 부족분의 10분의 1도 나아지지 않아 이전 값으로 되돌렸습니다",
        ],
    ),
    (
        "act.unseen",
        [
            "the check could not be run again, so the old values are back: {what}",
            "再検査できなかったため、元の値に戻しました: {what}",
            "다시 검사할 수 없어 이전 값으로 되돌렸습니다: {what}",
        ],
    ),
    (
        "act.refused.by-hand",
        [
            "Forebay cannot do this one; a person can, see what helps",
            "Forebay では実行できません。「対処」を人が行ってください",
            "Forebay가 할 수 없습니다. '조치'를 사람이 직접 수행하십시오",
        ],
    ),
    (
        "act.refused.place",
        [
            "{path} is no setting of the running kernel below /proc/sys, /proc/irq or /sys",
            "{path} は /proc/sys、/proc/irq、/sys にあるカーネル設定ではありません",
            "{path}은(는) /proc/sys, /proc/irq, /sys 아래의 커널 설정이 아닙니다",
        ],
    ),
    (
        "act.refused.managed",
        [
            "{path}: the kernel places this interrupt by itself and refuses changes",
            "{path}: この割り込みはカーネル自身が配置するため変更できません",
            "{path}: 이 인터럽트는 커널이 직접 배치하므로 변경할 수 없습니다",
        ],
    ),
    (
        "act.refused.open",
        [
            "{path} was changed already for {finding}; take that back first: forebay doctor --revert {finding}",
            "{path} は {finding} のために変更済みです。先に戻してください: forebay doctor --revert {finding}",
            "{path}은(는) {finding} 때문에 이미 변경되었습니다. 먼저 되돌리십시오: forebay doctor --revert {finding}",
        ],
    ),
    (
        "act.refused.unread",
        [
            "what it holds now could not be read, so it could not be taken back: {why}",
            "現在の値を読めないため、元に戻せません: {why}",
            "현재 값을 읽을 수 없어 되돌릴 수 없습니다: {why}",
        ],
    ),
    (
        "act.failed.write",
        [
            "the kernel did not take {value}: {why}",
            "カーネルが {value} を受け付けませんでした: {why}",
            "커널이 {value}을(를) 받아들이지 않았습니다: {why}",
        ],
    ),
    (
        "act.failed.read-back",
        [
            "{path} reads {reads} after {value} was written",
            "{path} に {value} を書き込みましたが、読み出すと {reads} です",
            "{path}에 {value}을(를) 썼지만 {reads}(으)로 읽힙니다",
        ],
    ),
    (
        "act.gone-with-boot",
        [
            "{path}: the host was booted since, and such a setting ends with it; nothing was written",
            "{path}: その後再起動されており、この設定は失われています。何も書き込みませんでした",
            "{path}: 그 후 재부팅되어 이 설정은 사라졌습니다. 아무것도 쓰지 않았습니다",
        ],
    ),
    (
        "act.gone-with-device",
        [
            "{path} is there no more; nothing was written",
            "{path} はもう存在しません。何も書き込みませんでした",
            "{path}은(는) 더 이상 존재하지 않습니다. 아무것도 쓰지 않았습니다",
        ],
    ),
    (
        "act.not-restored",
        [
            "it stays in the journal, so that it can be tried again: {why}",
            "再試行できるよう記録に残します: {why}",
            "다시 시도할 수 있도록 기록에 남깁니다: {why}",
        ],
    ),
    ("act.restored", ["{path} is {old} again", "{path} は {old} に戻りました", "{path}이(가) 다시 {old}입니다"]),
    (
        "act.restored-over",
        [
            "{path} is {old} again; somebody else had made it {was} meanwhile",
            "{path} は {old} に戻りました。途中で他者が {was} に変更していました",
            "{path}이(가) 다시 {old}입니다. 그사이 다른 누군가가 {was}(으)로 바꾸어 놓았습니다",
        ],
    ),
    ("act.was-back", ["{path} was {old} already", "{path} は既に {old} でした", "{path}은(는) 이미 {old}였습니다"]),
    (
        "act.nothing-open",
        [
            "Nothing that the doctor has changed is to be taken back.",
            "元に戻すべき変更はありません。",
            "되돌릴 변경 사항이 없습니다.",
        ],
    ),
    (
        "act.nothing-awaits",
        ["Nothing awaits confirmation.", "確認待ちの変更はありません。", "확인을 기다리는 변경 사항이 없습니다."],
    ),
    (
        "act.confirmed",
        [
            "{finding}: confirmed, it stays",
            "{finding}: 確認されました。この設定を維持します",
            "{finding}: 확인되어 유지됩니다",
        ],
    ),
    (
        "act.confirm",
        [
            "goes back in {seconds} s unless this is typed: forebay doctor --confirm",
            "次を実行しない限り {seconds} 秒後に元に戻ります: forebay doctor --confirm",
            "다음을 실행하지 않으면 {seconds}초 후 되돌아갑니다: forebay doctor --confirm",
        ],
    ),
    (
        "act.not-confirmed",
        [
            "{finding}: nobody has confirmed it; taken back",
            "{finding}: 確認されなかったため、元に戻しました",
            "{finding}: 확인되지 않아 되돌렸습니다",
        ],
    ),
    (
        "baseline.worse",
        ["worse   {what}: {was} -> {now}", "悪化    {what}: {was} -> {now}", "악화    {what}: {was} -> {now}"],
    ),
    (
        "baseline.other",
        ["changed {what}: {was} -> {now}", "変化    {what}: {was} -> {now}", "변경    {what}: {was} -> {now}"],
    ),
    (
        "baseline.better",
        ["better  {what}: {was} -> {now}", "改善    {what}: {was} -> {now}", "개선    {what}: {was} -> {now}"],
    ),
    (
        "baseline.same",
        [
            "{count} things are as they were at {time} (kernel {was}; now {now})",
            "{count} 項目は {time} 時点から変わっていません (カーネル {was}、現在 {now})",
            "{count}개 항목이 {time} 당시와 같습니다 (커널 {was}, 현재 {now})",
        ],
    ),
    (
        "baseline.differs",
        [
            "{count} things differ from {time} (kernel {was}; now {now}), {worse} of them for the worse",
            "{time} (カーネル {was}、現在 {now}) から {count} 項目が変わり、うち {worse} 項目が悪化しました",
            "{time}(커널 {was}, 현재 {now})와 {count}개 항목이 다르며 그중 {worse}개가 나빠졌습니다",
        ],
    ),
    (
        "baseline.saved",
        [
            "{count} things are kept in {path}",
            "{count} 項目を {path} に保存しました",
            "{count}개 항목을 {path}에 저장했습니다",
        ],
    ),
    (
        "act.damaged",
        [
            "{count} lines of the journal are damaged: what they tell of is not taken back",
            "記録の {count} 行が破損しています。その内容は元に戻せません",
            "기록의 {count}줄이 손상되어 그 내용은 되돌릴 수 없습니다",
        ],
    ),
];
