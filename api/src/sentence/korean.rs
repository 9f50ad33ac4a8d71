//! Korean particles: which form one has depends on the sound that the word before it ends in, and that word is often put in.
//!
//! The tables have both forms, `을(를)`, `은(는)`, `이(가)`, `과(와)`, `(으)로`, `(이)나`, `(이)라`, or either alone right behind `{name}`: the right
//! one is chosen while a sentence is filled in. Where it cannot be told, as of a word in another script, what the table has stays.

/// How a word ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// In a vowel.
    Vowel,
    /// In ㄹ, which is a vowel's equal before 로.
    Rieul,
    /// In another consonant.
    Consonant,
}

/// A particle: behind a consonant, behind a vowel, and how the tables write it where either may be.
struct Particle {
    consonant: &'static str,
    vowel: &'static str,
    both: [&'static str; 2],
    /// Whether it is known by itself, right behind what is put in, with nothing or one of [`AFTER`] behind it.
    alone: bool,
}

const PARTICLES: [Particle; 8] = [
    Particle { consonant: "을", vowel: "를", both: ["을(를)", "를(을)"], alone: true },
    Particle { consonant: "은", vowel: "는", both: ["은(는)", "는(은)"], alone: true },
    Particle { consonant: "과", vowel: "와", both: ["과(와)", "와(과)"], alone: true },
    Particle { consonant: "으로", vowel: "로", both: ["(으)로", "로(으로)"], alone: true },
    Particle { consonant: "이", vowel: "가", both: ["이(가)", "가(이)"], alone: true },
    Particle { consonant: "이나", vowel: "나", both: ["(이)나", "이나(나)"], alone: false },
    Particle { consonant: "이라", vowel: "라", both: ["(이)라", "이라(라)"], alone: false },
    Particle { consonant: "이었", vowel: "였", both: ["이었(였)", "였(이었)"], alone: false },
];

/// What may follow a particle in one word.
const AFTER: [&str; 6] = ["만", "도", "는", "의", "부터", "서"];

/// The particle that a text begins with, and what follows it; the choice of those that stand alone is for what is right behind a value.
fn split(text: &str, behind_value: bool) -> Option<(&'static Particle, &str)> {
    for particle in &PARTICLES {
        if let Some(rest) = particle.both.iter().find_map(|both| text.strip_prefix(both)) {
            return Some((particle, rest));
        }
    }
    let ends = |rest: &str| !rest.chars().next().is_some_and(is_hangul);
    PARTICLES.iter().filter(|particle| particle.alone && behind_value).find_map(|particle| {
        let rest = text.strip_prefix(particle.consonant).or_else(|| text.strip_prefix(particle.vowel))?;
        let whole = ends(rest) || AFTER.iter().any(|after| rest.strip_prefix(after).is_some_and(ends));
        whole.then_some((particle, rest))
    })
}

/// Adds a piece of a sentence with its particles chosen by what is before them. `behind_value`: the piece follows what was put in.
pub fn push(out: &mut String, piece: &str, behind_value: bool) {
    let mut rest = piece;
    // Brackets and quotes that close around what was put in change nothing.
    let mut is_behind = behind_value;
    while let Some(next) = rest.chars().next() {
        if let Some((particle, after)) = split(rest, is_behind) {
            let form = match end(out) {
                None => &rest[..rest.len() - after.len()],
                Some(End::Vowel) => particle.vowel,
                Some(End::Rieul) if particle.vowel == "로" => particle.vowel,
                Some(End::Rieul | End::Consonant) => particle.consonant,
            };
            out.push_str(form);
            (rest, is_behind) = (after, false);
            continue;
        }
        out.push(next);
        rest = &rest[next.len_utf8()..];
        is_behind &= matches!(next, ')' | '\'' | '"' | '`' | '’' | '”' | ']');
    }
}

fn is_hangul(letter: char) -> bool {
    ('가'..='힣').contains(&letter)
}

/// How a text ends when it is read aloud. What is in brackets at its end is not read: the particle is that of the word before. None: it
/// cannot be told.
pub fn end(text: &str) -> Option<End> {
    let text = text.trim_end_matches(|c: char| !c.is_alphanumeric() && !matches!(c, ')' | '%' | '+'));
    if let Some(inside) = text.strip_suffix(')') {
        let mut depth = 1;
        for (at, c) in inside.char_indices().rev() {
            depth += match c {
                ')' => 1,
                '(' => -1,
                _ => 0,
            };
            if depth == 0 {
                return end(&text[..at]).or_else(|| end(inside));
            }
        }
        return end(inside);
    }
    let last = text.chars().next_back()?;
    match last {
        '가'..='힣' => Some(match (u32::from(last) - u32::from('가')) % 28 {
            0 => End::Vowel,
            8 => End::Rieul,
            _ => End::Consonant,
        }),
        // 일, 칠, 팔; 영 (십, 백, 천), 삼, 육; 이, 사, 오, 구.
        '1' | '7' | '8' => Some(End::Rieul),
        '0' | '3' | '6' => Some(End::Consonant),
        '2' | '4' | '5' | '9' => Some(End::Vowel),
        // 퍼센트, 플러스.
        '%' | '+' => Some(End::Vowel),
        'a'..='z' | 'A'..='Z' => {
            let word = text.rsplit(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or(text);
            Some(end_of_latin(word))
        }
        _ => None,
    }
}

/// How a word in Latin letters ends as it is read in Korean: an abbreviation by the name of its last letter, a word by its sound.
fn end_of_latin(word: &str) -> End {
    let lower = word.to_ascii_lowercase();
    let is_vowel = |c: &u8| b"aeiou".contains(c);
    let bytes = lower.as_bytes();
    let spelled = word.len() < 2 || !bytes.iter().any(|c| is_vowel(c) || *c == b'y');
    // 엘, 알; 엠, 엔. Units such as GB, ms and GHz end in a vowel.
    let by_name = match bytes.last() {
        Some(b'l' | b'r') => End::Rieul,
        Some(b'm' | b'n') => End::Consonant,
        _ => End::Vowel,
    };
    if spelled {
        return by_name;
    }
    let [.., before, last] = bytes else { return by_name };
    match (before, last) {
        // module 모듈, file 파일; deadline 데드라인, scheme 스킴; core 코어, node 노드.
        (b'l', b'e') | (_, b'l') => End::Rieul,
        (b'n' | b'm', b'e') | (b'n', b'g') | (_, b'm' | b'n') => End::Consonant,
        // block 블록; disk 디스크, link 링크.
        (b'c', b'k') => End::Consonant,
        // map 맵, slot 슬롯, public 퍼블릭: a short vowel; root 루트, port 포트 are none.
        (vowel, b'p' | b't' | b'c') if is_vowel(vowel) => match bytes.len().checked_sub(3).map(|at| bytes[at]) {
            Some(first) if is_vowel(&first) => End::Vowel,
            _ => End::Consonant,
        },
        _ => End::Vowel,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_end_in_the_sound_that_they_are_read_with() {
        let of = |wanted: End, words: &[&str]| {
            for word in words {
                assert_eq!(end(word), Some(wanted), "{word}");
            }
        };
        of(
            End::Consonant,
            &[
                "값",
                "노드 6",
                "eth0",
                "100",
                "mq-deadline",
                "none",
                "smbd.mem",
                "RAM",
                "block",
                "slot",
                "swap",
                "public",
                "ping",
            ],
        );
        of(
            End::Vowel,
            &[
                "노드", "노드 2", "node", "sda", "CPU", "46.2 GB", "3 ms", "25 Gb/s", "2.4 GHz", "87 %", "kyber",
                "bfq", "root", "port",
            ],
        );
        of(
            End::Vowel,
            &["powersave", "performance", "nfsd", "disk", "/proc/sys/vm/zone_reclaim_mode", "0000:82:00.4", "802.3ad"],
        );
        of(End::Rieul, &["물", "노드 1", "nvme0n8", "schedutil", "module", "URL", "R", "kernel"]);
        // What is in brackets is not read.
        of(End::Consonant, &["값(노드 2)", "(값)", "값 (x)."]);
        of(End::Vowel, &["mlx5(25 Gb/s (x8))"]);
        for untold in ["", "日本", "—", "()"] {
            assert_eq!(end(untold), None, "{untold}");
        }
    }

    #[test]
    fn each_particle_follows_the_sound_before_it() {
        let pairs = [
            ("을(를)", ["값을", "노드를", "물을"]),
            ("를(을)", ["값을", "노드를", "물을"]),
            ("은(는)", ["값은", "노드는", "물은"]),
            ("이(가)", ["값이", "노드가", "물이"]),
            ("과(와)", ["값과", "노드와", "물과"]),
            ("와(과)", ["값과", "노드와", "물과"]),
            ("(으)로", ["값으로", "노드로", "물로"]),
            ("(이)나", ["값이나", "노드나", "물이나"]),
            ("(이)라", ["값이라", "노드라", "물이라"]),
            ("이었(였)", ["값이었", "노드였", "물이었"]),
            ("을", ["값을", "노드를", "물을"]),
            ("는", ["값은", "노드는", "물은"]),
            ("이", ["값이", "노드가", "물이"]),
            ("가", ["값이", "노드가", "물이"]),
            ("와의", ["값과의", "노드와의", "물과의"]),
            ("로만", ["값으로만", "노드로만", "물로만"]),
            ("으로", ["값으로", "노드로", "물로"]),
        ];
        for (particle, wanted) in pairs {
            for (word, wanted) in ["값", "노드", "물"].into_iter().zip(wanted) {
                let mut out = word.to_owned();
                push(&mut out, &format!("{particle} 씁니다"), true);
                assert_eq!(out, format!("{wanted} 씁니다"), "{particle}");
            }
        }
    }

    #[test]
    fn what_only_looks_like_a_particle_stays() {
        for piece in ["입니다", "이며", "가지", "은행", " 이 노드", "이면", "로그", "라면", "가능합니다", "이고"]
        {
            let mut out = "값".to_owned();
            push(&mut out, piece, true);
            assert_eq!(out, format!("값{piece}"));
        }
        let mut out = String::new();
        push(&mut out, "커널은 값을(를) 씁니다. 이 노드는", false);
        assert_eq!(out, "커널은 값을 씁니다. 이 노드는");
        let mut out = "日本".to_owned();
        push(&mut out, "을(를) 씁니다", true);
        assert_eq!(out, "日本을(를) 씁니다", "what cannot be told stays");
    }
}
