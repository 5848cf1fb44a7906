//! `lockkeeper schema`: the tables of a database, for an administrator to make.

use lockkeeper_cli::exit::Failure;
use lockkeeper_cli::output::print;

/// Prints the statements that make the tables of a database, and the rights that a user needs
///
/// A store in a database makes its tables by itself if it may. Where it may not, an administrator runs this once, for
/// instance: lockkeeper schema postgres --user app | psql -d app, or lockkeeper schema mysql --user app | mariadb locks
#[derive(Debug, clap::Args)]
#[command(arg = lockkeeper_cli::store::unused())]
pub struct Args {
    /// The kind of database
    #[arg(value_enum)]
    database: Database,
    /// The user that programs connect as
    #[arg(long, default_value = "lockkeeper")]
    user: String,
    /// The schema of the tables, as the option `schema` of the URL
    #[arg(long, default_value = "lockkeeper")]
    schema: String,
    /// What the names of the tables begin with, as the option `prefix` of the URL
    #[arg(long, default_value = "lockkeeper_")]
    prefix: String,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Database {
    Postgres,
    /// MySQL or MariaDB
    Mysql,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let text = match args.database {
        Database::Postgres => lockkeeper::store::postgres::schema(&args.schema, &args.user),
        Database::Mysql => lockkeeper::store::mysql::schema(&args.prefix, &args.user)?,
    };
    Ok(print(&text)?)
}
