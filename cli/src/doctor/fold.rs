//! Long lines, folded for a terminal at words and with an indent: what a terminal cuts by itself it cuts in the middle of words.

use forebay_api::checked::without_controls;
use forebay_doctor::words::columns;
use std::fmt::Write;

/// Lines that are indented so far are for copying, and stay whole.
const COPIED_INDENT: usize = 8;
/// How much farther in a line goes on.
const HANGING: usize = 2;
/// No narrower than that: such a terminal may cut for itself.
const WIDTH_MIN: usize = 40;

/// Prints it without what a terminal would obey, since names of processes, and what a record says, are anybody's; folded to the terminal, and as it is to anything else.
pub fn print(text: &str) {
    let text = &without_controls(text);
    match crate::top::terminal_size() {
        Some((width, _)) if width >= WIDTH_MIN => print!("{}", folded(text, width)),
        _ => print!("{text}"),
    }
}

/// Kana and Han have no spaces between words: a line may end after each.
fn ends_anywhere(c: char) -> bool {
    matches!(u32::from(c), 0x3041..=0x30ff | 0x3400..=0x9fff) || matches!(c, '、' | '。' | '：' | '）')
}

/// What stays with the character before it.
fn begins_no_line(c: char) -> bool {
    matches!(c, '、' | '。' | '：' | '）' | '」' | 'ー' | 'っ' | 'ッ' | 'ゃ' | 'ャ' | 'ゅ' | 'ュ' | 'ょ' | 'ョ')
}

/// Lines of at most so many columns; a word that is longer stays whole.
fn folded(text: &str, width: usize) -> String {
    let mut folded = String::with_capacity(text.len());
    for line in text.lines() {
        let indent = line.len() - line.trim_start_matches(' ').len();
        if indent >= COPIED_INDENT || line.chars().map(columns).sum::<usize>() <= width {
            let _ = writeln!(folded, "{line}");
            continue;
        }
        let hanging = " ".repeat(indent + HANGING);
        let (mut out, mut used) = (String::new(), 0);
        for word in words(line) {
            let wide: usize = word.trim_end().chars().map(columns).sum();
            let at_start = out.trim_start().is_empty();
            if used + wide > width && !at_start {
                let _ = writeln!(folded, "{}", out.trim_end());
                out = hanging.clone();
                used = hanging.len();
            }
            out.push_str(word);
            used += word.chars().map(columns).sum::<usize>();
        }
        let _ = writeln!(folded, "{}", out.trim_end());
    }
    folded
}

/// Pieces between which a line may end, each with the spaces behind it.
fn words(line: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let (mut begin, mut before) = (0, ' ');
    for (at, c) in line.char_indices() {
        let after_word = before == ' ' && c != ' ';
        let between = (ends_anywhere(before) || ends_anywhere(c) && before != ' ') && c != ' ';
        if at > 0 && (after_word || between && !begins_no_line(c)) && !line[begin..at].trim().is_empty() {
            words.push(&line[begin..at]);
            begin = at;
        }
        before = c;
    }
    words.push(&line[begin..]);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_between_words_and_go_on_indented() {
        let text = "warning  one core does all the receiving of eth0  [one-core/eth0, certain]\n    shown by: /proc/softirqs: 5\n";
        let wanted = "warning  one core does all the\n  receiving of eth0\n  [one-core/eth0, certain]\n    shown by: /proc/softirqs:\n      5\n";
        assert_eq!(folded(text, 30), wanted);
        assert_eq!(folded(text, 80), text);
    }

    #[test]
    fn what_is_copied_and_what_has_no_end_of_a_word_stay_whole() {
        let command = "        echo 1 > /sys/devices/system/node/node0/a/long/path\n";
        assert_eq!(folded(command, 40), command);
        let word = "    /sys/devices/system/node/node0/a/long/path/without/spaces\n";
        assert_eq!(folded(word, 40), word);
    }

    #[test]
    fn characters_of_two_columns_count_as_two() {
        let japanese = "警告  このホストを制限しているものは見つかりませんでした。\n";
        let lines = folded(japanese, 40);
        assert_eq!(lines.replace("\n  ", "").trim_end(), japanese.trim_end(), "nothing is lost");
        assert!(lines.lines().count() == 2, "{lines}");
        for line in lines.lines() {
            assert!(line.chars().map(columns).sum::<usize>() <= 40 && !line.trim_start().starts_with('。'), "{line}");
        }
        let korean = "경고  이 호스트를 제한하는 요소를 찾지 못했습니다. 다시 보십시오.\n";
        assert_eq!(folded(korean, 40), "경고  이 호스트를 제한하는 요소를 찾지\n  못했습니다. 다시 보십시오.\n");
    }
}
