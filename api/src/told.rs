//! What the daemon tells of what happened and of what is not as it should be, in each language; and the states and reasons that are put
//! into it, as `{@name}`: a row `word.` with what is put in says them.

use super::sentence::{Language, Row, Sentence};

/// Why nothing is destaged after too many take-overs without proof, and what ends that.
pub const AWAITING_FENCE: &str = "nothing is destaged: as many former owners as can be named may still write to it. Each has to be \
     fenced, or `forebay volume fenced` to be told that it was";

/// Every sentence of events and of what is degraded, by its key.
const ROWS: &[Row] = &[
    (
        "event.started-first",
        [
            "forebay {version} was started, for the first time on this state folder",
            "forebay {version} を起動しました（この状態フォルダーでは初回）",
            "forebay {version}을(를) 이 상태 폴더에서 처음 시작했습니다",
        ],
    ),
    (
        "event.started",
        [
            "forebay {version} was started, after a stop in order",
            "forebay {version} を起動しました（前回は正常に停止）",
            "forebay {version}을(를) 시작했습니다(이전에는 정상 종료)",
        ],
    ),
    (
        "event.started-after-crash",
        [
            "forebay {version} was started, after a daemon that was killed, or crashed, or lost its machine",
            "forebay {version} を起動しました（前回のデーモンは強制終了、異常終了、またはマシンの停止で終わりました）",
            "forebay {version}을(를) 시작했습니다(이전 데몬은 강제 종료되었거나, 비정상 종료되었거나, 기기가 멈추었습니다)",
        ],
    ),
    (
        "event.stopped-complete",
        [
            "the daemon was stopped; every image is complete",
            "デーモンを停止しました。すべてのイメージは完全です",
            "데몬을 중지했습니다. 모든 이미지가 완전합니다",
        ],
    ),
    (
        "event.stopped-incomplete",
        [
            "the daemon was stopped; not every image is complete by itself",
            "デーモンを停止しました。それだけでは完全でないイメージがあります",
            "데몬을 중지했습니다. 그 자체로 완전하지 않은 이미지가 있습니다",
        ],
    ),
    (
        "event.created",
        [
            "created, of {size}, before {backing}",
            "{backing} の前に {size} で作成しました",
            "{backing} 앞에 {size} 크기로 만들었습니다",
        ],
    ),
    (
        "event.deleted",
        [
            "it was deleted, and its history with it; its backing stays",
            "ボリュームとその履歴を削除しました。バッキングは残ります",
            "볼륨과 그 기록을 삭제했습니다. 백킹은 남습니다",
        ],
    ),
    (
        "event.resized",
        ["grown from {from} to {to}", "{from} から {to} に拡張しました", "{from}에서 {to}(으)로 늘렸습니다"],
    ),
    ("event.phase", ["from {@from} to {@to}", "{@from}から{@to}になりました", "{@from}에서 {@to}(으)로 바뀌었습니다"]),
    (
        "event.phase-why",
        [
            "from {@from} to {@to}: {why}",
            "{@from}から{@to}になりました：{why}",
            "{@from}에서 {@to}(으)로 바뀌었습니다: {why}",
        ],
    ),
    ("event.policy", ["{@policy}, as requested", "要求どおり{@policy}です", "요청대로 {@policy}입니다"]),
    (
        "event.policy-instead",
        [
            "{@policy} instead of {@requested}: {@reason}",
            "{@requested}ではなく{@policy}です：{@reason}",
            "{@requested} 대신 {@policy}입니다: {@reason}",
        ],
    ),
    (
        "event.tier-failed",
        [
            "the tier {path} has failed: writes fail, reads go on",
            "ティア {path} が故障しました。書き込みは失敗し、読み取りは続きます",
            "티어 {path}이(가) 고장 났습니다. 쓰기는 실패하고 읽기는 계속됩니다",
        ],
    ),
    (
        "event.destage",
        [
            "destage is {@mode} now: {@reason}",
            "デステージは{@mode}になりました：{@reason}",
            "디스테이지가 {@mode} 방식이 되었습니다: {@reason}",
        ],
    ),
    ("event.tier", ["its tier is in {@tier} now", "ティアは{@tier}に移りました", "티어가 {@tier}(으)로 옮겨졌습니다"]),
    (
        "event.backing-failing",
        [
            "the backing fails: {why}; what was acknowledged stays in the tier",
            "バッキングがエラーを返しています：{why}。確認応答済みのデータはティアに残ります",
            "백킹이 오류를 냅니다: {why}. 확인 응답된 데이터는 티어에 남습니다",
        ],
    ),
    (
        "event.backing-ready",
        [
            "the backing is ready: no longer {@before}",
            "バッキングの準備ができました（以前は{@before}）",
            "백킹이 준비되었습니다(이전 상태: {@before})",
        ],
    ),
    ("event.backing-opened", ["the backing was opened", "バッキングを開きました", "백킹을 열었습니다"]),
    (
        "event.hold-begun",
        [
            "the backing is complete and stays unchanged for {seconds} s at most",
            "バッキングは完全で、最大 {seconds} 秒間変更されません",
            "백킹이 완전하며 최대 {seconds}초 동안 바뀌지 않습니다",
        ],
    ),
    (
        "event.hold-ended",
        ["the backing is written to again", "バッキングへの書き込みを再開しました", "백킹에 다시 씁니다"],
    ),
    (
        "event.image-in-place",
        ["the image is at its path again", "イメージが元のパスに戻りました", "이미지가 다시 제 경로에 있습니다"],
    ),
    (
        "event.throttling-begun",
        [
            "writes are slowed to the backing's speed: {dirty} of {most} are dirty",
            "書き込みがバッキングの速度に抑えられています：{most} のうち {dirty} がまだ書き込まれていません",
            "쓰기가 백킹의 속도로 늦춰집니다: {most} 중 {dirty}이(가) 아직 기록되지 않았습니다",
        ],
    ),
    (
        "event.throttling-ended",
        [
            "throttling ended: writes find room at once",
            "スロットリングが終わりました。書き込みはすぐに空きを得ます",
            "스로틀링이 끝났습니다. 쓰기가 바로 공간을 얻습니다",
        ],
    ),
    (
        "event.owner",
        [
            "{owner} owns it, after {former}",
            "{former} に代わって {owner} が所有しています",
            "{former}에 이어 {owner}이(가) 소유합니다",
        ],
    ),
    ("event.first-owner", ["{owner} owns it", "{owner} が所有しています", "{owner}이(가) 소유합니다"]),
    (
        "event.member-lost",
        [
            "{node} no longer holds a copy of its log",
            "{node} はログのコピーを保持しなくなりました",
            "{node}이(가) 더는 로그 사본을 가지고 있지 않습니다",
        ],
    ),
    (
        "event.member-joined",
        [
            "{node} holds a copy of its log",
            "{node} がログのコピーを保持しています",
            "{node}이(가) 로그 사본을 가지고 있습니다",
        ],
    ),
    (
        "event.link-up",
        ["the link to {peer} works", "{peer} へのリンクが回復しました", "{peer}에 대한 링크가 작동합니다"],
    ),
    (
        "event.link-down",
        ["the link to {peer} is down", "{peer} へのリンクが切れています", "{peer}에 대한 링크가 끊겼습니다"],
    ),
    (
        "event.coordinator-well",
        [
            "etcd has room, and no alarm, again",
            "etcd に空きがあり、アラームもなくなりました",
            "etcd에 다시 공간이 있고 경보가 없습니다",
        ],
    ),
    ("event.history-ready", ["the history is written again", "履歴の書き込みを再開しました", "기록을 다시 씁니다"]),
    (
        "event.clock-back",
        [
            "the wall clock was set back by {seconds} s; of seconds that come twice the history keeps the newer account",
            "システム時刻が {seconds} 秒戻されました。重複する秒については、履歴は新しい方を残します",
            "시스템 시각이 {seconds}초 뒤로 돌아갔습니다. 두 번 나오는 초에 대해서는 새로운 쪽을 남깁니다",
        ],
    ),
    (
        "event.clock-forward",
        [
            "the wall clock went forward by {seconds} s: it was set, or the machine was suspended; the history has a gap",
            "システム時刻が {seconds} 秒進みました。時刻が設定されたか、マシンがサスペンドしていました。履歴に空白があります",
            "시스템 시각이 {seconds}초 앞으로 갔습니다. 시각이 설정되었거나 기기가 절전 상태였습니다. 기록에 빈 구간이 있습니다",
        ],
    ),
    (
        "event.finding-gone",
        [
            "{finding}: the doctor no longer finds it",
            "{finding}：doctor はもう検出していません",
            "{finding}: doctor가 더는 발견하지 않습니다",
        ],
    ),
    ("event.board", ["the board's event log: {line}", "ボードのイベントログ：{line}", "보드의 이벤트 로그: {line}"]),
    (
        "event.board-one",
        [
            "the board's event log has one entry: {line}",
            "ボードのイベントログに 1 件あります：{line}",
            "보드의 이벤트 로그에 항목이 하나 있습니다: {line}",
        ],
    ),
    (
        "event.board-many",
        [
            "the board's event log has {entries} entries, the newest one: {line}",
            "ボードのイベントログに {entries} 件あり、最新は：{line}",
            "보드의 이벤트 로그에 항목 {entries}개가 있으며 가장 새로운 것은: {line}",
        ],
    ),
    (
        "degraded.awaiting-lock",
        [
            "I/O of an earlier process to the backing is awaited; nothing is destaged",
            "以前のプロセスがバッキングに出した I/O の終了を待っています。デステージは行われません",
            "이전 프로세스가 백킹에 낸 I/O가 끝나기를 기다립니다. 디스테이지하지 않습니다",
        ],
    ),
    (
        "degraded.awaiting-fence",
        [
            AWAITING_FENCE,
            "デステージは行われません。記録できる上限の数の以前の所有者が、まだ書き込む可能性があります。それぞれをフェンスするか、フェンスしたことを `forebay volume fenced` で伝えてください",
            "디스테이지하지 않습니다. 기록할 수 있는 최대 수의 이전 소유자가 아직 쓸 수 있습니다. 각각을 펜스하거나, 펜스했음을 `forebay volume fenced`로 알려야 합니다",
        ],
    ),
    (
        "degraded.writes-wait",
        [
            "writes wait for room in the tier: {dirty} of {most} are dirty",
            "書き込みがティアの空きを待っています：{most} のうち {dirty} がまだ書き込まれていません",
            "쓰기가 티어의 공간을 기다립니다: {most} 중 {dirty}이(가) 아직 기록되지 않았습니다",
        ],
    ),
    (
        "degraded.writes-unanswered",
        [
            "a write or flush has had no answer for {seconds} s",
            "書き込みまたはフラッシュが {seconds} 秒間応答を得ていません",
            "쓰기나 플러시가 {seconds}초 동안 응답을 받지 못했습니다",
        ],
    ),
    (
        "degraded.too-few-copies",
        [
            "{copies} of {wanted} requested copies",
            "要求されたコピー {wanted} 個のうち {copies} 個があります",
            "요청한 사본 {wanted}개 중 {copies}개가 있습니다",
        ],
    ),
    (
        "degraded.too-few-copies-why",
        [
            "{copies} of {wanted} requested copies; {why}",
            "要求されたコピー {wanted} 個のうち {copies} 個があります。{why}",
            "요청한 사본 {wanted}개 중 {copies}개가 있습니다. {why}",
        ],
    ),
    (
        "degraded.unfenced",
        [
            "{owners} former owners may still write to the backing",
            "以前の所有者 {owners} 台がまだバッキングに書き込む可能性があります",
            "이전 소유자 {owners}대가 아직 백킹에 쓸 수 있습니다",
        ],
    ),
    (
        "degraded.close-hangs",
        [
            "closing {what} has not ended after {seconds} s: its file system does not answer; whatever waits for its lock waits for that",
            "{what} を閉じる処理が {seconds} 秒たっても終わりません。ファイルシステムが応答していません。そのロックを待つものはこれを待ちます",
            "{what}을(를) 닫는 일이 {seconds}초가 지나도 끝나지 않았습니다. 파일 시스템이 응답하지 않습니다. 그 잠금을 기다리는 것은 모두 이를 기다립니다",
        ],
    ),
    (
        "degraded.close-hangs-more",
        [
            "closing {what} has not ended after {seconds} s (and {more} more): its file system does not answer; whatever waits for its lock waits for that",
            "{what}（ほか {more} 件）を閉じる処理が {seconds} 秒たっても終わりません。ファイルシステムが応答していません。そのロックを待つものはこれを待ちます",
            "{what}을(를) 닫는 일이(그 밖에 {more}건) {seconds}초가 지나도 끝나지 않았습니다. 파일 시스템이 응답하지 않습니다. 그 잠금을 기다리는 것은 모두 이를 기다립니다",
        ],
    ),
    (
        "degraded.link-down",
        [
            "there is no link to it: {why}",
            "このノードへのリンクがありません：{why}",
            "이 노드에 대한 링크가 없습니다: {why}",
        ],
    ),
    (
        "degraded.channels-down",
        [
            "{down} of its {channels} channels are down: {why}",
            "チャネル {channels} 本のうち {down} 本が切れています：{why}",
            "채널 {channels}개 중 {down}개가 끊겼습니다: {why}",
        ],
    ),
    ("word.waiting", ["waiting", "待機中", "대기 중"]),
    ("word.recovering", ["recovering", "回復中", "복구 중"]),
    ("word.following", ["following", "追従中", "따라가는 중"]),
    ("word.agreeing", ["agreeing", "合意中", "합의 중"]),
    ("word.serving", ["serving", "サービス中", "서비스 중"]),
    ("word.stopping", ["stopping", "停止中", "중지하는 중"]),
    ("word.stopped", ["stopped", "停止", "중지됨"]),
    ("word.failed", ["failed", "失敗", "실패"]),
    ("word.write-back", ["write-back", "ライトバック", "라이트백"]),
    ("word.write-through", ["write-through", "ライトスルー", "라이트스루"]),
    ("word.draining", ["draining", "排出中", "비우는 중"]),
    ("word.drained-through", ["drained-through", "排出済み、完全な状態を維持", "비움, 완전한 상태 유지"]),
    ("word.too-few-peers", ["too-few-peers", "ピア不足", "피어 부족"]),
    ("word.tier-error", ["tier-error", "ティア障害", "티어 장애"]),
    ("word.as-requested", ["as-requested", "要求どおり", "요청한 대로"]),
    ("word.owned-elsewhere", ["owned-elsewhere", "別のノードが所有", "다른 노드가 소유"]),
    ("word.no-journal", ["no-journal", "ジャーナルなし", "저널 없음"]),
    ("word.policy-through", ["policy-through", "ライトスルーではまとめるものがない", "라이트스루는 합칠 것이 없음"]),
    ("word.nothing-to-merge", ["nothing-to-merge", "まとめるものがない", "합칠 것이 없음"]),
    ("word.small-groups", ["small-groups", "グループが小さい", "그룹이 작음"]),
    ("word.large-groups", ["large-groups", "グループが大きい", "그룹이 큼"]),
    ("word.backlog-grows", ["backlog-grows", "未処理が増加中", "밀린 양이 늘어남"]),
    ("word.ordered", ["ordered", "順序どおり", "순서대로"]),
    ("word.journaled", ["journaled", "ジャーナル", "저널"]),
    ("word.memory", ["memory", "メモリ", "메모리"]),
    ("word.flash", ["flash", "フラッシュ", "플래시"]),
    ("word.awaiting-lock", ["awaiting-lock", "ロック待ち", "잠금 대기"]),
    ("word.replaying-journal", ["replaying-journal", "ジャーナル再生中", "저널 재생 중"]),
    ("word.awaiting-fence", ["awaiting-fence", "フェンス待ち", "펜스 대기"]),
    ("word.held", ["held", "ホールド中", "홀드 중"]),
    ("word.failing", ["failing", "バッキング障害", "백킹 장애"]),
    ("word.closed", ["closed", "閉じている", "닫힘"]),
    ("word.ready", ["ready", "準備完了", "준비됨"]),
];

/// Something that is told: in English, and where it is a sentence of the table, in any language.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// The text in English, as it is logged and kept.
    pub text: String,
    /// What is said in other languages as well. None: a text that somebody else has made, such as the kernel's error.
    pub sentence: Option<Sentence>,
}

impl From<Sentence> for Told {
    fn from(sentence: Sentence) -> Told {
        Told { text: say(Language::En, &sentence).unwrap_or_default(), sentence: Some(sentence) }
    }
}

impl From<String> for Told {
    fn from(text: String) -> Told {
        Told { text, sentence: None }
    }
}

impl From<&str> for Told {
    fn from(text: &str) -> Told {
        text.to_owned().into()
    }
}

/// A sentence of this table in a language. None: it is in another one.
pub fn say(language: Language, sentence: &Sentence) -> Option<String> {
    sentence.said(&[ROWS], language)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::{BackingState, DestageReason, PolicyReason, VolumePhase};

    #[test]
    fn every_sentence_is_there_once_and_in_each_language_with_the_same_values() {
        crate::sentence::check::tables(&[ROWS]);
    }

    #[test]
    fn each_state_and_reason_that_is_put_in_has_its_word() {
        let told: [&[&str]; 4] = [VolumePhase::WORDS, PolicyReason::WORDS, DestageReason::WORDS, BackingState::WORDS];
        for word in told.concat() {
            let key = format!("word.{word}");
            assert!(ROWS.iter().any(|(known, _)| *known == key) || word == "elsewhere", "{key}");
        }
    }

    /// The dashboard shows the same states beside the sentences.
    #[test]
    fn a_state_has_the_word_that_the_dashboard_has_for_it() {
        let lists: [(&str, &[&str]); 4] = [
            ("phase", VolumePhase::WORDS),
            ("destage-reason", DestageReason::WORDS),
            ("reason", PolicyReason::WORDS),
            ("backing", BackingState::WORDS),
        ];
        for (language, strings) in [
            (Language::Ja, include_str!("../../web/strings/ja.json")),
            (Language::Ko, include_str!("../../web/strings/ko.json")),
        ] {
            let strings: std::collections::BTreeMap<String, String> = serde_json::from_str(strings).unwrap();
            // A word of two lists, such as `stopping`, is said as in the first.
            let mut compared = std::collections::BTreeSet::new();
            for (list, words) in lists {
                for word in words {
                    if compared.contains(word) {
                        continue;
                    }
                    let ours = say(language, &Sentence { key: format!("word.{word}"), with: Vec::new() });
                    let (Some(ours), Some(theirs)) = (ours, strings.get(&format!("{list}.{word}"))) else { continue };
                    assert_eq!(ours, *theirs, "{list}.{word}");
                    compared.insert(word);
                }
            }
            assert!(compared.len() > 20, "only {compared:?} are in both");
        }
    }

    #[test]
    fn a_state_is_said_in_the_language_and_one_that_is_not_known_as_it_is() {
        let phase = |to: &str| Sentence::new("event.phase").with("from", "waiting").with("to", to);
        assert_eq!(Told::from(phase("serving")).text, "from waiting to serving");
        assert_eq!(say(Language::Ko, &phase("serving")).unwrap(), "대기 중에서 서비스 중으로 바뀌었습니다");
        assert_eq!(Told::from(phase("dreaming")).text, "from waiting to dreaming");
        assert_eq!(say(Language::Ja, &Sentence::new("disk.scheduler")), None);
    }
}
