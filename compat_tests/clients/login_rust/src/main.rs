// Authentication of rdkafka at listeners with SASL and TLS.
// login CELLS: CELLS is a JSON file with login methods; prints a line of JSON for each: "in" if authenticated, else the error.
use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use rdkafka::client::OAuthToken;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode;
use rdkafka::ClientContext;
use serde_json::{json, Value};

struct LoginContext {
    token: Option<String>,
    errors_seen: Arc<Mutex<Vec<RDKafkaErrorCode>>>,
}

impl ClientContext for LoginContext {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn error(&self, error: KafkaError, _reason: &str) {
        if let Some(code) = error.rdkafka_error_code() {
            self.errors_seen.lock().unwrap().push(code);
        }
    }

    fn generate_oauth_token(&self, _: Option<&str>) -> Result<OAuthToken, Box<dyn Error>> {
        let later = SystemTime::now() + Duration::from_secs(3600);
        Ok(OAuthToken {
            token: self.token.clone().unwrap_or_default(),
            principal_name: String::new(),
            lifetime_ms: later.duration_since(SystemTime::UNIX_EPOCH)?.as_millis() as i64,
        })
    }
}

impl ConsumerContext for LoginContext {}

fn authenticate(cell: &Value) -> String {
    let text = |name: &str| cell[name].as_str().map(str::to_owned);
    let mut conf = ClientConfig::new();
    conf.set("bootstrap.servers", text("bootstrap").unwrap()).set("security.protocol", text("protocol").unwrap());
    let checks = if cell["checks_host"].as_bool() == Some(true) { "https" } else { "none" };
    let names = [
        ("ssl.ca.location", text("ca")),
        ("ssl.endpoint.identification.algorithm", text("ca").map(|_| checks.to_owned())),
        ("ssl.certificate.location", text("certificate")),
        ("ssl.key.location", text("certificate")),
        ("sasl.mechanism", text("mechanism")),
        ("sasl.username", text("user")),
        ("sasl.password", text("password")),
    ];
    for (name, value) in names {
        if let Some(value) = value {
            conf.set(name, value);
        }
    }
    let errors_seen = Arc::new(Mutex::new(vec![]));
    let client: BaseConsumer<LoginContext> =
        match conf.create_with_context(LoginContext { token: text("token"), errors_seen: errors_seen.clone() }) {
            Ok(client) => client,
            Err(error) => return error.to_string(),
        };
    let until = Instant::now() + Duration::from_secs(20);
    while Instant::now() < until {
        let _ = client.poll(Duration::from_millis(50));
        let errors = errors_seen.lock().unwrap().clone();
        if let Some(code) = errors.iter().find(|x| **x != RDKafkaErrorCode::AllBrokersDown) {
            return format!("{code:?}");
        }
        if client.fetch_metadata(None, Duration::from_millis(500)).is_ok() {
            return "in".to_owned();
        }
    }
    "timeout".to_owned()
}

fn main() {
    let raw = std::fs::read_to_string(std::env::args().nth(1).expect("a file")).expect("cells");
    let cells: Vec<Value> = serde_json::from_str(&raw).expect("cells");
    let threads: Vec<_> = cells.into_iter().map(|cell| std::thread::spawn(move || (cell["name"].clone(), authenticate(&cell)))).collect();
    for thread in threads {
        let (name, result) = thread.join().expect("result");
        println!("{}", json!([name, result]));
    }
}
