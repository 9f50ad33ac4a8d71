//! `forebay`: the command line, and the daemon that it starts.

fn main() -> std::process::ExitCode {
    forebay_cli::main(forebay_node::serve::run)
}
