"""Scans of primary-key tables: the scanners of clients on top of the storage's scans."""
