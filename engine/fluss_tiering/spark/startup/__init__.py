"""How an application starts: the Spark session, its JVM, its workers, and this package on the executors."""
