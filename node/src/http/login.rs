//! Logging in by a browser: a token becomes a session's cookie, which no script can read.

use super::access::{By, Caller, Guard, Listed};
use super::{Failed, Outcome};
use axum::Extension;
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{Html, IntoResponse, Redirect, Response};
use forebay_core::roles::Certified;
use serde::Deserialize;
use std::sync::Arc;
use std::time::Instant;

/// The form, for browsers in which the dashboard is not open.
const PAGE: &str = include_str!("login.html");

/// `GET /login`: the form that takes a token.
pub async fn page() -> Html<&'static str> {
    Html(PAGE)
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
        return Ok(refused(form));
    };
    let begun = guard.sessions.begin(role, Instant::now());
    let id = begun.map_err(|error| Failed(StatusCode::INTERNAL_SERVER_ERROR, format!("cannot log in: {error:#}")))?;
    let cookie = [(header::SET_COOKIE, guard.cookie(&id))];
    if form {
        return Ok((cookie, Redirect::to("/")).into_response());
    }
    Ok((cookie, axum::Json(Caller { role: Some(role), by: Some(By::Session) })).into_response())
}

fn refused(form: bool) -> Response {
    let why = "this is not a token of this daemon: they are in the files `token` and `token-read` of its state folder";
    if form {
        let page = PAGE.replace("<!--problem-->", why);
        return (StatusCode::UNAUTHORIZED, Html(page)).into_response();
    }
    Failed(StatusCode::UNAUTHORIZED, why.to_owned()).into_response()
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
