CREATE TABLE kv_snapshot_leases (
	lease_id TEXT NOT NULL, 
	acquired_time BIGINT NOT NULL, 
	expiration_time BIGINT NOT NULL, 
	attempt_token BIGINT NOT NULL, 
	PRIMARY KEY (lease_id)
);
INSERT INTO "kv_snapshot_leases" VALUES('X',1000,9000,3);
CREATE TABLE lake_snapshot_offsets (
	commit_order INTEGER NOT NULL, 
	partition_id BIGINT NOT NULL, 
	bucket_id INTEGER NOT NULL, 
	log_end_offset BIGINT NOT NULL, 
	PRIMARY KEY (commit_order, partition_id, bucket_id), 
	FOREIGN KEY(commit_order) REFERENCES lake_snapshots (commit_order) ON DELETE CASCADE
);
INSERT INTO "lake_snapshot_offsets" VALUES(1,-1,0,100);
CREATE TABLE lake_snapshots (
	commit_order INTEGER NOT NULL, 
	table_id BIGINT NOT NULL, 
	snapshot_id BIGINT NOT NULL, 
	tiering_epoch BIGINT NOT NULL, 
	commit_id TEXT NOT NULL, 
	offsets_path TEXT NOT NULL, 
	committed_time BIGINT NOT NULL, 
	PRIMARY KEY (commit_order), 
	UNIQUE (table_id, snapshot_id)
);
INSERT INTO "lake_snapshots" VALUES(1,1,42,6,'c','/offsets',4000);
CREATE TABLE lease_attempts (
	lease_id TEXT NOT NULL, 
	attempt_token BIGINT NOT NULL, 
	started_time BIGINT NOT NULL, 
	cancelled_reason TEXT, 
	PRIMARY KEY (lease_id)
);
INSERT INTO "lease_attempts" VALUES('X',3,1000,NULL);
CREATE TABLE leased_snapshots (
	lease_id TEXT NOT NULL, 
	table_id BIGINT NOT NULL, 
	partition_id BIGINT NOT NULL, 
	bucket_id INTEGER NOT NULL, 
	snapshot_id BIGINT NOT NULL, 
	PRIMARY KEY (lease_id, table_id, partition_id, bucket_id), 
	FOREIGN KEY(lease_id) REFERENCES kv_snapshot_leases (lease_id) ON DELETE CASCADE
);
INSERT INTO "leased_snapshots" VALUES('X',1,-1,0,7);
CREATE TABLE server_meta (
	name TEXT NOT NULL, 
	value BIGINT NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "server_meta" VALUES('schema_version',1);
INSERT INTO "server_meta" VALUES('attempt_token',3);
CREATE TABLE tiering_rounds (
	table_id BIGINT NOT NULL, 
	tiering_epoch BIGINT NOT NULL, 
	database_name TEXT NOT NULL, 
	table_name TEXT NOT NULL, 
	state TEXT NOT NULL, 
	lease_id TEXT NOT NULL, 
	attempt_token BIGINT, 
	driver TEXT NOT NULL, 
	start_time BIGINT NOT NULL, 
	end_time BIGINT, 
	error TEXT, 
	rows BIGINT, 
	bytes BIGINT, 
	files BIGINT, 
	lake_snapshot_id BIGINT, 
	force_finished BOOLEAN NOT NULL, 
	PRIMARY KEY (table_id, tiering_epoch)
);
INSERT INTO "tiering_rounds" VALUES(1,7,'db','t1','Tiering','X',3,'driver',5000,NULL,NULL,NULL,NULL,NULL,NULL,0);
CREATE TABLE tiering_statuses (
	table_id BIGINT NOT NULL, 
	database_name TEXT NOT NULL, 
	table_name TEXT NOT NULL, 
	state TEXT NOT NULL, 
	state_since BIGINT NOT NULL, 
	tiering_epoch BIGINT NOT NULL, 
	last_tiered_time BIGINT, 
	last_error TEXT, 
	last_error_time BIGINT, 
	consecutive_failures INTEGER NOT NULL, 
	next_retry_time BIGINT, 
	PRIMARY KEY (table_id)
);
INSERT INTO "tiering_statuses" VALUES(1,'db','t1','Tiering',5000,7,NULL,NULL,NULL,0,NULL);
CREATE INDEX ix_tiering_rounds_lease_id ON tiering_rounds (lease_id);
