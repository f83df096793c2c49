"""How an application starts: the Spark session, its JVM, its workers, and the package on its way to executors."""
