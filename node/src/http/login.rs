//! Logging in by a browser: a token becomes a session's cookie, which no script can read.

use super::access::{By, Caller, Guard, Listed};
use super::{Failed, Outcome};
use axum::Extension;
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{Html, IntoResponse, Redirect, Response};
use forebay_api::sentence::{Language, Row};
use forebay_core::roles::Certified;
use serde::Deserialize;
use std::sync::Arc;
use std::time::Instant;

/// The form, for browsers in which the dashboard is not open.
const PAGE: &str = include_str!("login.html");

/// Why a token is refused.
const REFUSED: [&str; 3] = [
    "this is not a token of this daemon: they are in the files `token` and `token-read` of its state folder",
    "このデーモンのトークンではありません。トークンは状態フォルダーのファイル `token` と `token-read` にあります。",
    "이 데몬의 토큰이 아닙니다. 토큰은 상태 폴더의 `token` 파일과 `token-read` 파일에 있습니다.",
];

/// What the form says, as markup, by the places in the page.
const WORDS: [Row; 4] = [
    ("language", ["en", "ja", "ko"]),
    ("title", ["Forebay: log in", "Forebay: ログイン", "Forebay: 로그인"]),
    (
        "token",
        [
            "Token, from the file <code>token</code> (to change) or <code>token-read</code> (to look) in the daemon's state folder",
            "トークン（デーモンの状態フォルダーのファイル <code>token</code> は変更用、<code>token-read</code> は表示用）",
            "토큰(데몬 상태 폴더의 <code>token</code> 파일은 변경용, <code>token-read</code> 파일은 조회용)",
        ],
    ),
    ("button", ["Log in", "ログイン", "로그인"]),
];

/// The form in a language, with what was wrong before.
fn form_in(language: Language, problem: &str) -> Html<String> {
    let page = PAGE.replace("{problem}", problem);
    Html(
        WORDS.iter().fold(page, |page, (place, texts)| page.replace(&format!("{{{place}}}"), texts[language as usize])),
    )
}

/// The language that the browser asks for, of those that are spoken.
fn asked_for(headers: &HeaderMap) -> Language {
    let accepted = headers.get(header::ACCEPT_LANGUAGE).and_then(|accepted| accepted.to_str().ok());
    accepted.and_then(Language::accepted).unwrap_or_default()
}

/// `GET /login`: the form that takes a token.
pub async fn page(headers: HeaderMap) -> Html<String> {
    form_in(asked_for(&headers), "")
}

/// `GET /v1/login`: who asks.
pub async fn who(Extension(caller): Extension<Caller>) -> axum::Json<Caller> {
    axum::Json(caller)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Login {
    token: String,
}

/// `POST /v1/login`: JSON, or the form.
pub async fn log_in(Extension(guard): Extension<Arc<Guard>>, headers: HeaderMap, body: Bytes) -> Outcome {
    if guard.listening.is_none() {
        let why = "the unix socket knows its callers by themselves: there is no login there";
        return Err(Failed(StatusCode::BAD_REQUEST, why.to_owned()));
    }
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let form = kind.starts_with("application/x-www-form-urlencoded");
    let given = if form {
        // Tokens are hexadecimal: nothing in them is encoded.
        String::from_utf8_lossy(&body).strip_prefix("token=").unwrap_or_default().to_owned()
    } else {
        let login: Result<Login, _> = serde_json::from_slice(&body);
        login
            .map_err(|error| Failed(StatusCode::BAD_REQUEST, format!("a login is {{\"token\": TEXT}}: {error}")))?
            .token
    };
    let Some(role) = guard.tokens.role_of(given.trim().trim_end_matches('+')) else {
        return Ok(refused(form.then(|| asked_for(&headers))));
    };
    let begun = guard.sessions.begin(role, Instant::now());
    let id = begun.map_err(|error| Failed(StatusCode::INTERNAL_SERVER_ERROR, format!("cannot log in: {error:#}")))?;
    let cookie = [(header::SET_COOKIE, guard.cookie(&id))];
    if form {
        return Ok((cookie, Redirect::to("/")).into_response());
    }
    Ok((cookie, axum::Json(Caller { role: Some(role), by: Some(By::Session) })).into_response())
}

/// By the form in its language, where it was asked by the form.
fn refused(by_form: Option<Language>) -> Response {
    match by_form {
        Some(language) => (StatusCode::UNAUTHORIZED, form_in(language, REFUSED[language as usize])).into_response(),
        None => Failed(StatusCode::UNAUTHORIZED, REFUSED[Language::En as usize].to_owned()).into_response(),
    }
}

/// `DELETE /v1/login`: ends the session, and takes its cookie back.
pub async fn log_out(Extension(guard): Extension<Arc<Guard>>, headers: HeaderMap) -> Response {
    if let Some(id) = guard.session_id(&headers) {
        guard.sessions.end(id);
    }
    (StatusCode::NO_CONTENT, [(header::SET_COOKIE, guard.cookie(""))]).into_response()
}

/// Who speaks, for the audit log.
pub fn by(peer: &super::Peer, caller: &Caller) -> String {
    let means = |certificate: &Option<Arc<Certified>>| match (caller.by, certificate) {
        (Some(By::Certificate), Some(certificate)) => {
            format!("the owner of the certificate {}", certificate.described())
        }
        (Some(By::Session), _) => "a session of the token's owner".to_owned(),
        (Some(By::Certificate | By::Token | By::UnixSocket | By::Loopback) | None, _) => "the token's owner".to_owned(),
    };
    match peer {
        super::Peer::Unix { uid: Some(uid) } => format!("user {uid} of this host"),
        super::Peer::Unix { uid: None } => "a user of this host".to_owned(),
        super::Peer::Tcp { from, certificate } => format!("{} at {}", means(certificate), from.ip()),
    }
}

/// What is told at the start about who may come in.
pub fn certificates_give(listed: &Listed) -> String {
    let Listed { admins, readers } = listed;
    match (admins.names().len(), readers.names().len()) {
        (0, 0) => "certificates are good for nothing: none is listed by --http-admin or --http-reader".to_owned(),
        (admins, readers) => format!("by certificate: {admins} listed to change, {readers} to look"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_is_in_the_language_that_the_browser_asks_for() {
        for (accepted, language, tag, button, why) in [
            ("en-GB,en;q=0.9", Language::En, "en", "Log in", "not a token"),
            ("ja,en;q=0.5", Language::Ja, "ja", "ログイン", "ではありません"),
            ("ko-KR", Language::Ko, "ko", "로그인", "토큰이 아닙니다"),
            ("fr", Language::En, "en", "Log in", "not a token"),
        ] {
            let headers = HeaderMap::from_iter([(header::ACCEPT_LANGUAGE, accepted.parse().unwrap())]);
            assert_eq!(asked_for(&headers), language, "{accepted}");
            let (Html(first), Html(again)) = (form_in(language, ""), form_in(language, REFUSED[language as usize]));
            for page in [&first, &again] {
                assert!(page.contains(&format!("<html lang=\"{tag}\">")), "{page}");
                assert!(page.contains(&format!("<button>{button}</button>")), "{page}");
                assert!(page.contains("action=\"/v1/login\"") && page.contains("<code>token-read</code>"), "{page}");
                for left in ["{", "}", "<!--", "<script", "style"] {
                    assert!(!page.contains(left), "{left} in {page}");
                }
            }
            assert!(first.contains("<p role=\"alert\"></p>") && !first.contains(why), "{first}");
            assert!(again.contains(why), "{again}");
            assert_eq!(refused(Some(language)).status(), StatusCode::UNAUTHORIZED);
        }
        assert_eq!(asked_for(&HeaderMap::new()), Language::En);
    }
}
