// rdkafka at listeners that ask who comes.
// login CELLS: the file has a list of ways in; for each a line of JSON says whether it leads in, or the class of the error.
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

struct Asking {
    token: Option<String>,
    told: Arc<Mutex<Vec<RDKafkaErrorCode>>>,
}

impl ClientContext for Asking {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn error(&self, error: KafkaError, _reason: &str) {
        if let Some(code) = error.rdkafka_error_code() {
            self.told.lock().unwrap().push(code);
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

impl ConsumerContext for Asking {}

fn ask(cell: &Value) -> String {
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
    let told = Arc::new(Mutex::new(vec![]));
    let client: BaseConsumer<Asking> =
        match conf.create_with_context(Asking { token: text("token"), told: told.clone() }) {
            Ok(client) => client,
            Err(error) => return error.to_string(),
        };
    let until = Instant::now() + Duration::from_secs(20);
    while Instant::now() < until {
        let _ = client.poll(Duration::from_millis(50));
        let errors = told.lock().unwrap().clone();
        if let Some(code) = errors.iter().find(|x| **x != RDKafkaErrorCode::AllBrokersDown) {
            return format!("{code:?}");
        }
        if client.fetch_metadata(None, Duration::from_millis(500)).is_ok() {
            return "in".to_owned();
        }
    }
    "nothing in time".to_owned()
}

fn main() {
    let raw = std::fs::read_to_string(std::env::args().nth(1).expect("a file")).expect("cells");
    let cells: Vec<Value> = serde_json::from_str(&raw).expect("cells");
    let asked: Vec<_> = cells.into_iter().map(|cell| std::thread::spawn(move || (cell["name"].clone(), ask(&cell)))).collect();
    for one in asked {
        let (name, said) = one.join().expect("an answer");
        println!("{}", json!([name, said]));
    }
}
