//! The dashboard's files. They are built from `web/` by its `build.mjs` and lie beside this file, so that cargo alone makes a whole binary;
//! `tests/tests/dashboard.rs` shows that they are what the sources build to.

use axum::extract::{Path, RawQuery};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use std::hash::{DefaultHasher, Hash, Hasher};

const INDEX: Asset =
    Asset { name: "index.html", kind: "text/html; charset=utf-8", bytes: include_bytes!("web/index.html") };
const ASSETS: [Asset; 3] = [
    Asset { name: "app.js", kind: "text/javascript; charset=utf-8", bytes: include_bytes!("web/app.js") },
    Asset { name: "app.css", kind: "text/css; charset=utf-8", bytes: include_bytes!("web/app.css") },
    Asset { name: "icon.svg", kind: "image/svg+xml", bytes: include_bytes!("web/icon.svg") },
];

struct Asset {
    name: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
}

/// The page itself. It is asked for again each time, which costs no bytes while it is the same.
pub async fn index(headers: HeaderMap) -> Response {
    answer(&INDEX, &headers, "no-cache")
}

/// What the page names. With the version that it names (`?v=`), a file never changes.
pub async fn asset(Path(name): Path<String>, RawQuery(query): RawQuery, headers: HeaderMap) -> Response {
    let Some(asset) = ASSETS.iter().find(|asset| asset.name == name) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let named = format!("\"/assets/{name}?{}\"", query.unwrap_or_default());
    let current = std::str::from_utf8(INDEX.bytes).is_ok_and(|page| page.contains(&named));
    answer(asset, &headers, if current { "public, max-age=31536000, immutable" } else { "no-cache" })
}

fn answer(asset: &Asset, headers: &HeaderMap, cache: &'static str) -> Response {
    let mut hasher = DefaultHasher::new();
    asset.bytes.hash(&mut hasher);
    let tag = format!("\"{:016x}\"", hasher.finish());
    let known = headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    let same = known.is_some_and(|known| known.split(',').any(|one| one.trim().trim_start_matches("W/") == tag));
    let about = [(header::CACHE_CONTROL, cache.to_owned()), (header::ETAG, tag)];
    if same {
        return (StatusCode::NOT_MODIFIED, about).into_response();
    }
    (about, [(header::CONTENT_TYPE, asset.kind)], asset.bytes).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> &'static str {
        std::str::from_utf8(INDEX.bytes).unwrap()
    }

    /// The versioned address of a file, as the page has it.
    fn version(name: &str) -> String {
        let (_, rest) = page().split_once(&format!("/assets/{name}?")).unwrap();
        rest.split('"').next().unwrap().to_owned()
    }

    fn cache(response: &Response) -> &str {
        response.headers()[header::CACHE_CONTROL].to_str().unwrap()
    }

    #[test]
    fn page_names_every_file_with_its_version_and_holds_no_script() {
        for asset in &ASSETS {
            assert!(version(asset.name).starts_with("v="), "{}", asset.name);
        }
        assert!(!page().contains("<style") && !page().contains("style="));
        assert!(page().matches("<script").count() == 1 && page().contains("</script>"));
        assert!(!page().contains("://"));
    }

    #[tokio::test]
    async fn only_the_version_that_the_page_names_is_kept_for_ever() {
        let of = |query: Option<String>| asset(Path("app.js".to_owned()), RawQuery(query), HeaderMap::new());
        let named = of(Some(version("app.js"))).await;
        assert_eq!(named.status(), StatusCode::OK);
        assert!(cache(&named).contains("immutable"));
        for other in [None, Some("v=0".to_owned()), Some(String::new())] {
            assert_eq!(cache(&of(other).await), "no-cache");
        }
    }

    #[tokio::test]
    async fn a_file_that_is_known_is_not_sent_again() {
        let first = index(HeaderMap::new()).await;
        let mut headers = HeaderMap::new();
        headers.insert(header::IF_NONE_MATCH, first.headers()[header::ETAG].clone());
        assert_eq!(index(headers.clone()).await.status(), StatusCode::NOT_MODIFIED);
        headers.insert(header::IF_NONE_MATCH, header::HeaderValue::from_static("\"0\""));
        assert_eq!(index(headers).await.status(), StatusCode::OK);
    }

    #[tokio::test]
    async fn a_file_that_is_not_there_is_not_found() {
        for name in ["index.html", "../token", ""] {
            let answer = asset(Path(name.to_owned()), RawQuery(None), HeaderMap::new()).await;
            assert_eq!(answer.status(), StatusCode::NOT_FOUND);
        }
    }
}
