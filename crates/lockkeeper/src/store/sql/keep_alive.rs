//! Connections whose other end may vanish without a word.

use std::time::Duration;

use tokio::net::TcpStream;

/// How long nothing is heard until the other end is asked whether it is there.
pub(crate) const IDLE: Duration = Duration::from_secs(20);
/// How often it is asked.
pub(crate) const INTERVAL: Duration = Duration::from_secs(10);
/// How many times it may leave that without an answer.
pub(crate) const COUNT: u32 = 3;
/// After how long it counts as gone, also if something was sent that it has not confirmed.
pub(crate) const GONE: Duration = Duration::from_secs(50);

/// Has the system end a connection within a minute after the other machine is gone. By default it waits for hours.
pub(crate) fn keep_alive(stream: &TcpStream) {
    use rustix::net::sockopt;
    // Where the system does not know a setting, its defaults are used.
    let _ = sockopt::set_socket_keepalive(stream, true);
    let _ = sockopt::set_tcp_keepidle(stream, IDLE);
    let _ = sockopt::set_tcp_keepintvl(stream, INTERVAL);
    let _ = sockopt::set_tcp_keepcnt(stream, COUNT);
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let _ = sockopt::set_tcp_user_timeout(stream, GONE.as_millis() as u32);
}
