//! The admin API: HTTP + JSON under `/v1`, metrics, and the dashboard.
//!
//! Who may do what: on the unix socket everybody who can open it reads, root and the daemon's own user change. On TCP a
//! loopback address reads without login, everything else needs a token, a client certificate or a session; `Host` and
//! `Origin` are checked so that no web page of another site can speak in its visitor's name.

mod access;
mod assets;
mod listener;
mod login;
mod sessions;
mod telemetry;

use crate::allowed::NamedBy;
use crate::cluster::control::Cluster;
use crate::cluster::deletion::GivenUp;
use crate::failure::{Failure, FailureKind};
use crate::metrics;
use crate::node::Node;
use access::{Caller, Guard};
pub use access::{Listed, Listening, Peer, Tokens};
use axum::extract::rejection::JsonRejection;
use axum::extract::{ConnectInfo, Path, Query, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, delete, get, patch, post};
use axum::{Extension, Json, Router};
use forebay_api::config::volume::Change;
use forebay_api::config::volume::VolumeSpec;
use forebay_api::events::{EventKind, Happened, Severity};
use forebay_api::sentence::Sentence;
use forebay_api::units::show_size;
use forebay_host::identity::revocation::Revocation;
pub use listener::{Bounded, Secured, Shared, load_tls, serve};
use login::by;
pub use login::certificates_give;
use serde::Deserialize;
use sessions::Sessions;
use std::sync::Arc;
use std::time::Duration;

const OPENAPI: &str = include_str!("openapi.json");
/// A volume that has not answered by then is missing in the metrics, which then come all the same.
const METRICS_WAIT: Duration = Duration::from_secs(2);

/// Every route: the method, the path as the OpenAPI file spells it, and what answers.
fn routes() -> Vec<(&'static str, &'static str, MethodRouter<Arc<Node>>)> {
    vec![
        ("get", "/", get(assets::index)),
        ("get", "/assets/{name}", get(assets::asset)),
        ("get", "/login", get(login::page)),
        ("get", "/v1/login", get(login::who)),
        ("post", "/v1/login", post(login::log_in)),
        ("delete", "/v1/login", delete(login::log_out)),
        ("get", "/metrics", get(metrics_text)),
        ("get", "/v1/openapi.json", get(|| async { ([(header::CONTENT_TYPE, "application/json")], OPENAPI) })),
        ("get", "/v1/status", get(|State(node): State<Arc<Node>>| async move { Json(node.node_report()) })),
        ("get", "/v1/volumes", get(|State(node): State<Arc<Node>>| async move { Json(node.reports().await) })),
        ("post", "/v1/volumes", post(create)),
        ("get", "/v1/volumes/{name}", get(show)),
        ("patch", "/v1/volumes/{name}", patch(set)),
        ("delete", "/v1/volumes/{name}", delete(remove)),
        ("post", "/v1/volumes/{name}/drain", post(drain)),
        ("post", "/v1/volumes/{name}/hold", post(hold)),
        ("post", "/v1/volumes/{name}/release", post(release)),
        ("post", "/v1/volumes/{name}/resize", post(resize)),
        ("post", "/v1/volumes/{name}/hand-over", post(hand_over)),
        ("post", "/v1/volumes/{name}/open", post(open)),
        ("post", "/v1/volumes/{name}/fenced", post(fenced)),
        ("post", "/v1/volumes/{name}/restore-record", post(restore_record)),
        ("get", "/v1/fleet", get(telemetry::fleet)),
        ("get", "/v1/volumes/{name}/history", get(telemetry::of_volume)),
        ("get", "/v1/volumes/{name}/heatmap", get(telemetry::heat_map)),
        ("get", "/v1/volumes/{name}/miss-ratio", get(telemetry::miss_ratio)),
        ("get", "/v1/nodes/{name}/history", get(telemetry::of_node)),
        ("get", "/v1/events", get(telemetry::events)),
        ("get", "/v1/doctor", get(telemetry::doctor)),
        ("get", "/v1/doctor/peers/{name}", get(telemetry::doctor_of_peer)),
        ("get", "/v1/stream", get(telemetry::stream)),
        ("get", "/v1/nodes", get(nodes)),
        ("post", "/v1/nodes/{name}/evacuate", post(evacuate_node)),
        ("delete", "/v1/nodes/{name}/evacuate", delete(end_evacuation)),
        ("post", "/v1/nodes/{name}/forget", post(forget)),
        ("post", "/v1/nodes/{name}/cannot-answer", post(cannot_answer)),
        ("post", "/v1/revocations", post(revoke)),
        ("get", "/v1/audit", get(audit)),
    ]
}

/// The API of a node, on TCP as it says or on the unix socket.
pub fn router(node: Arc<Node>, tokens: Tokens, listening: Option<Listening>) -> Router {
    let mut router = Router::new();
    for (_, path, answer) in routes() {
        router = router.route(path, answer);
    }
    let guard = Arc::new(Guard { tokens, listening, sessions: Sessions::default() });
    router
        .fallback(|| async { Failed(StatusCode::NOT_FOUND, "there is no such path; see /v1/openapi.json".to_owned()) })
        .layer(Extension(guard.clone()))
        .layer(axum::middleware::from_fn_with_state(guard, check))
        .with_state(node)
}

/// On every answer, refusals too. The pages need nothing from anywhere else, run no code but their files', and nobody needs
/// to frame them. (Not HSTS: it would bind other servers of the same host name to TLS as well.)
const HEADERS: [(header::HeaderName, &str); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; \
         form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    // Not `no-referrer`: a form would then be sent from the origin `null`.
    (header::REFERRER_POLICY, "same-origin"),
    (header::HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

async fn check(
    State(guard): State<Arc<Guard>>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    mut request: Request,
    next: Next,
) -> Response {
    let mut response = match guard.check(&peer, request.method(), request.uri().path(), request.headers()) {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err((status, why)) => Failed(status, why).into_response(),
    };
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, header::HeaderValue::from_static(value));
    }
    // The dashboard's own files say how long they hold.
    headers.entry(header::CACHE_CONTROL).or_insert(header::HeaderValue::from_static("no-store"));
    response
}

/// An answer that says what went wrong.
#[derive(Debug)]
struct Failed(StatusCode, String);

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        (self.0, Json(serde_json::json!({ "error": self.1 }))).into_response()
    }
}

impl From<Failure> for Failed {
    fn from(failure: Failure) -> Failed {
        let status = match failure.kind {
            FailureKind::NotFound => StatusCode::NOT_FOUND,
            FailureKind::Invalid => StatusCode::BAD_REQUEST,
            FailureKind::Conflict => StatusCode::CONFLICT,
            FailureKind::Failed => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Failed(status, failure.message)
    }
}

impl From<JsonRejection> for Failed {
    fn from(rejection: JsonRejection) -> Failed {
        Failed(StatusCode::BAD_REQUEST, rejection.body_text())
    }
}

type Body<T> = Result<Json<T>, JsonRejection>;
type Outcome = Result<Response, Failed>;

fn ok(report: impl serde::Serialize) -> Outcome {
    Ok(Json(report).into_response())
}

async fn metrics_text(State(node): State<Arc<Node>>, headers: HeaderMap) -> impl IntoResponse {
    let nodes = match node.cluster() {
        Some(cluster) => cluster.node_reports().await,
        None => Vec::new(),
    };
    let format = metrics::Format::of(headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()));
    let mut looks = node.looks(tokio::time::Instant::now() + METRICS_WAIT).await;
    looks.sort_by(|a, b| a.report.name.cmp(&b.report.name));
    let cluster = node.cluster();
    let identity = cluster.as_ref().map(|cluster| cluster.identity_ends());
    let text =
        metrics::render(format, &node.node_report(), &looks, &nodes, &node.telemetry().history_state(), identity);
    ([(header::CONTENT_TYPE, format.content_type()), (header::VARY, "Accept")], text)
}

/// Runs a command to its end even if the client goes away: half a command would leave a volume in between.
async fn to_the_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, Failure>> + Send + 'static,
) -> Result<T, Failed> {
    match tokio::spawn(work).await {
        Ok(result) => Ok(result?),
        Err(_) => Err(Failed(StatusCode::INTERNAL_SERVER_ERROR, "the command panicked; this is a bug".to_owned())),
    }
}

async fn create(
    State(node): State<Arc<Node>>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    body: Body<VolumeSpec>,
) -> Outcome {
    let Json(spec) = body?;
    // Who comes by the unix socket and may change something is root, or the daemon's user: he could open any of it himself.
    let named_by = match peer {
        Peer::Unix { .. } => NamedBy::Here,
        Peer::Tcp { .. } => NamedBy::Elsewhere,
    };
    let report = to_the_end(async move {
        let report = node.create(spec, named_by).await?;
        let sentence = Sentence::new("event.created").with("size", show_size(report.size_bytes));
        let sentence = sentence.with("backing", &report.backing.spec);
        let created = Happened::new(EventKind::VolumeCreated, Severity::Info, sentence).of(&report.name);
        node.telemetry().happened(created.with("size_bytes", report.size_bytes).with("volume", report.volume.as_str()));
        Ok(report)
    })
    .await?;
    Ok((StatusCode::CREATED, Json(report)).into_response())
}

async fn show(State(node): State<Arc<Node>>, Path(name): Path<String>) -> Outcome {
    ok(node.report(&name).await?)
}

async fn set(State(node): State<Arc<Node>>, Path(name): Path<String>, body: Body<Change>) -> Outcome {
    let Json(change) = body?;
    ok(to_the_end(async move { node.set(&name, change).await }).await?)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Removal {
    #[serde(default)]
    discard_dirty: bool,
    /// Former owners as NODE@TERM, with commas between them.
    #[serde(default)]
    fenced: String,
}

async fn remove(
    State(node): State<Arc<Node>>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
    Query(how): Query<Removal>,
) -> Outcome {
    let fenced = how.fenced.split(',').filter(|node| !node.is_empty()).map(str::to_owned).collect();
    let given_up = how.discard_dirty.then(|| GivenUp { fenced, by: by(&peer, &caller) });
    to_the_end(async move { node.delete(&name, given_up).await }).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct DrainHow {
    #[serde(default)]
    through: bool,
}

// The body, empty or not, is read to its end: a connection closed with unread bytes resets, and the answer is lost.
async fn drain(State(node): State<Arc<Node>>, Path(name): Path<String>, body: axum::body::Bytes) -> Outcome {
    let how: DrainHow = match body.is_empty() {
        true => DrainHow::default(),
        false => serde_json::from_slice(&body).map_err(|error| Failed(StatusCode::BAD_REQUEST, error.to_string()))?,
    };
    ok(to_the_end(async move { node.drain(&name, how.through).await }).await?)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HoldTime {
    seconds: u64,
}

async fn hold(State(node): State<Arc<Node>>, Path(name): Path<String>, body: Body<HoldTime>) -> Outcome {
    let Json(time) = body?;
    // Dropped with this future, which ends when the caller hangs up.
    let (_caller, gone) = tokio::sync::oneshot::channel();
    ok(to_the_end(async move { node.hold(&name, time.seconds, gone).await }).await?)
}

// The body, empty or not, is read to its end: a connection closed with unread bytes resets, and the answer is lost.
async fn release(State(node): State<Arc<Node>>, Path(name): Path<String>, _body: axum::body::Bytes) -> Outcome {
    ok(to_the_end(async move { node.release(&name).await }).await?)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewOwner {
    to: String,
}

async fn hand_over(State(node): State<Arc<Node>>, Path(name): Path<String>, body: Body<NewOwner>) -> Outcome {
    let Json(owner) = body?;
    ok(to_the_end(async move { node.hand_over(&name, &owner.to).await }).await?)
}

fn cluster_of(node: &Node) -> Result<Arc<Cluster>, Failed> {
    let cluster = node.cluster().cloned();
    cluster.ok_or_else(|| Failed(StatusCode::NOT_FOUND, "this node is not part of a cluster".to_owned()))
}

async fn nodes(State(node): State<Arc<Node>>) -> Outcome {
    ok(cluster_of(&node)?.node_reports().await)
}

// The body, empty or not, is read to its end: a connection closed with unread bytes resets, and the answer is lost.
async fn evacuate_node(State(node): State<Arc<Node>>, Path(name): Path<String>, _body: axum::body::Bytes) -> Outcome {
    let cluster = cluster_of(&node)?;
    ok(to_the_end(async move { cluster.evacuate_node(&name, false).await }).await?)
}

async fn end_evacuation(State(node): State<Arc<Node>>, Path(name): Path<String>) -> Outcome {
    let cluster = cluster_of(&node)?;
    ok(to_the_end(async move { cluster.evacuate_node(&name, true).await }).await?)
}

/// A decision that costs something needs a second word.
fn needs_second_word(said: bool, word: &str) -> Result<(), Failed> {
    if said {
        Ok(())
    } else {
        Err(Failed(StatusCode::BAD_REQUEST, format!("this needs a second word: \"{word}\": true")))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OpenHow {
    #[serde(default)]
    accept_loss: bool,
    #[serde(default)]
    yes_lose_acknowledged_writes: bool,
    #[serde(default)]
    take_synced: bool,
    #[serde(default)]
    yes_lose_unsynced_writes: bool,
}

async fn open(
    State(node): State<Arc<Node>>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
    body: Body<OpenHow>,
) -> Outcome {
    let Json(OpenHow { accept_loss, yes_lose_acknowledged_writes, take_synced, yes_lose_unsynced_writes }) = body?;
    needs_second_word(!accept_loss || yes_lose_acknowledged_writes, "yes_lose_acknowledged_writes")?;
    needs_second_word(!take_synced || yes_lose_unsynced_writes, "yes_lose_unsynced_writes")?;
    if take_synced && accept_loss {
        return Err(Failed(StatusCode::BAD_REQUEST, "take_synced and accept_loss say two things; give one".to_owned()));
    }
    if take_synced {
        return ok(to_the_end(async move { node.take_synced(&name, &by(&peer, &caller)).await }).await?);
    }
    ok(to_the_end(async move { node.open_in_cluster(&name, accept_loss, &by(&peer, &caller)).await }).await?)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FencedNodes {
    /// Each as NODE@TERM.
    i_fenced: Vec<String>,
}

async fn fenced(
    State(node): State<Arc<Node>>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
    body: Body<FencedNodes>,
) -> Outcome {
    let Json(FencedNodes { i_fenced }) = body?;
    ok(to_the_end(async move { node.fenced(&name, &i_fenced, &by(&peer, &caller)).await }).await?)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WentBack {
    #[serde(default)]
    yes_the_coordinator_went_back: bool,
    /// What the operator has seen that this node knows: the term and the epoch, with a `/` between them.
    i_saw: Option<String>,
}

/// Term and epoch, as `volume show` prints them.
fn seen_version(text: &str) -> Option<(u32, u32)> {
    let (term, epoch) = text.split_once('/')?;
    Some((term.parse().ok()?, epoch.parse().ok()?))
}

async fn restore_record(
    State(node): State<Arc<Node>>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
    body: Body<WentBack>,
) -> Outcome {
    let Json(WentBack { yes_the_coordinator_went_back, i_saw }) = body?;
    needs_second_word(yes_the_coordinator_went_back, "yes_the_coordinator_went_back")?;
    let saw = match i_saw.as_deref().map(|text| (text, seen_version(text))) {
        Some((text, None)) => {
            let why = format!("i_saw = {text:?} is not what `volume show` prints: a term and an epoch, such as 3/17");
            return Err(Failed(StatusCode::BAD_REQUEST, why));
        }
        Some((_, saw)) => saw,
        None => None,
    };
    ok(to_the_end(async move { node.restore_record(&name, saw, &by(&peer, &caller)).await }).await?)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KnowledgeLost {
    #[serde(default)]
    yes_what_it_knows_may_be_lost: bool,
}

async fn cannot_answer(
    State(node): State<Arc<Node>>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
    body: Body<KnowledgeLost>,
) -> Outcome {
    let Json(KnowledgeLost { yes_what_it_knows_may_be_lost }) = body?;
    needs_second_word(yes_what_it_knows_may_be_lost, "yes_what_it_knows_may_be_lost")?;
    let said = name.clone();
    to_the_end(async move { node.cannot_answer(&name, &by(&peer, &caller)).await }).await?;
    ok(serde_json::json!({ "name": said, "waited_for": false }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MachineGone {
    #[serde(default)]
    yes_its_machine_is_gone: bool,
    revocation: Option<Revocation>,
}

async fn forget(
    State(node): State<Arc<Node>>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
    body: Body<MachineGone>,
) -> Outcome {
    let Json(MachineGone { yes_its_machine_is_gone, revocation }) = body?;
    needs_second_word(yes_its_machine_is_gone, "yes_its_machine_is_gone")?;
    let (forgotten, revoked) = (name.clone(), revocation.is_some());
    to_the_end(async move { node.forget(&name, revocation, &by(&peer, &caller)).await }).await?;
    ok(serde_json::json!({ "name": forgotten, "forgotten": true, "revoked": revoked }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Revoked {
    revocations: Vec<Revocation>,
}

async fn revoke(
    State(node): State<Arc<Node>>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    Extension(caller): Extension<Caller>,
    body: Body<Revoked>,
) -> Outcome {
    let Json(Revoked { revocations }) = body?;
    let names: Vec<_> = revocations.iter().map(|revocation| revocation.name.clone()).collect();
    to_the_end(async move { node.revoke(revocations, &by(&peer, &caller)).await }).await?;
    ok(serde_json::json!({ "revoked": names }))
}

async fn audit(State(node): State<Arc<Node>>) -> Outcome {
    ok(node.audit_log().await?)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewSize {
    size_bytes: u64,
}

async fn resize(State(node): State<Arc<Node>>, Path(name): Path<String>, body: Body<NewSize>) -> Outcome {
    let Json(size) = body?;
    ok(to_the_end(async move { node.resize(&name, size.size_bytes).await }).await?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Args;
    use serde_json::Value;
    use std::collections::BTreeSet;

    #[test]
    fn openapi_file_has_every_route_and_no_other() {
        let file: Value = serde_json::from_str(OPENAPI).unwrap();
        let paths = file["paths"].as_object().unwrap();
        let mut described: Vec<(String, String)> = Vec::new();
        for (path, methods) in paths {
            for method in methods.as_object().unwrap().keys().filter(|k| *k != "parameters") {
                described.push((method.clone(), path.clone()));
            }
        }
        let mut served: Vec<(String, String)> =
            routes().into_iter().map(|(method, path, _)| (method.to_owned(), path.to_owned())).collect();
        described.sort();
        served.sort();
        assert_eq!(described, served);
        assert_eq!(file["info"]["version"], env!("CARGO_PKG_VERSION"));
    }

    #[test]
    fn openapi_file_describes_what_reports_hold() {
        let file: Value = serde_json::from_str(OPENAPI).unwrap();
        let (node, mut volume) = crate::status::tests::example();
        volume.cluster = Some(forebay_api::cluster::example_volume());
        let peer = forebay_api::cluster::example_node();
        let mut lacks = Vec::new();
        for (schema, value) in [
            ("Volume", serde_json::to_value(volume).unwrap()),
            ("Node", serde_json::to_value(node).unwrap()),
            ("ClusterNode", serde_json::to_value(peer).unwrap()),
        ] {
            undescribed(&file["components"]["schemas"][schema], &value, schema, &mut lacks);
        }
        assert!(lacks.is_empty(), "not in the OpenAPI file: {lacks:?}");
    }

    /// What an answer holds and its schema does not say. A map of figures has no names in its schema.
    fn undescribed(schema: &Value, value: &Value, path: &str, lacks: &mut Vec<String>) {
        match value {
            Value::Object(parts) if schema["properties"].is_object() => {
                for (name, part) in parts {
                    let path = format!("{path}.{name}");
                    match schema["properties"].get(name) {
                        Some(schema) => undescribed(schema, part, &path, lacks),
                        None => lacks.push(path),
                    }
                }
            }
            Value::Array(parts) => parts.iter().for_each(|part| undescribed(&schema["items"], part, path, lacks)),
            _ => {}
        }
    }

    /// States and reasons are enums of ours: a word that one gains is described, or this fails.
    #[test]
    fn openapi_file_lists_the_words_of_each_state_and_reason() {
        use forebay_api::words::*;
        let file: Value = serde_json::from_str(OPENAPI).unwrap();
        let words = |schema: &str, path: &str| -> Vec<String> {
            let of = path.split('/').fold(&file["components"]["schemas"][schema], |schema, part| {
                let schema = if schema["items"].is_object() { &schema["items"] } else { schema };
                &schema["properties"][part]
            });
            serde_json::from_value(of["enum"].clone()).unwrap_or_else(|_| panic!("{schema}/{path} has no enum"))
        };
        for (schema, path, known) in [
            ("Volume", "phase", VolumePhase::WORDS),
            ("Volume", "policy/reason", PolicyReason::WORDS),
            ("Volume", "destage/reason", DestageReason::WORDS),
            ("Volume", "backing/state", BackingState::WORDS),
            ("Volume", "cluster/state", MemberState::WORDS),
            ("Volume", "cluster/reason", OwnershipReason::WORDS),
            ("Volume", "cluster/owner_reason", OwnershipReason::WORDS),
            ("Volume", "cluster/log", LogNeed::WORDS),
            ("Volume", "cluster/flushed", FlushedBy::WORDS),
            ("ClusterNode", "channels/phase", ChannelPhase::WORDS),
            ("ClusterNode", "evacuation/state", EvacuationState::WORDS),
        ] {
            assert_eq!(words(schema, path), known, "{schema}/{path}");
        }
    }

    /// What a volume is asked for has one definition, of which the options of the command line are made as well.
    #[test]
    fn openapi_file_describes_the_settings_of_a_volume_and_no_others() {
        let file: Value = serde_json::from_str(OPENAPI).unwrap();
        let described = |schema: &Value| -> BTreeSet<String> {
            schema["properties"].as_object().expect("it has properties").keys().cloned().collect()
        };
        let options = |command: clap::Command| -> BTreeSet<String> {
            command.get_arguments().map(|argument| argument.get_id().to_string()).collect()
        };
        let mut asked = options(VolumeSpec::augment_args(clap::Command::new("create")));
        // Not of the command that creates one.
        asked.insert("same_image".to_owned());
        assert_eq!(described(&file["components"]["schemas"]["VolumeSpec"]), asked);
        let body =
            &file["paths"]["/v1/volumes/{name}"]["patch"]["requestBody"]["content"]["application/json"]["schema"];
        assert_eq!(described(body), options(Change::augment_args(clap::Command::new("set"))));
    }
}
