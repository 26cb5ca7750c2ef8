//! Prints the status and the body of each URL.
fn main() -> Result<(), Box<dyn std::error::Error>> {
    for url in std::env::args().skip(1) {
        let mut answer = jail_fetch::get(&url)?;
        let status = answer.status();
        println!("{} {}", status, answer.text()?);
    }
    Ok(())
}
