-- A database of schema 1 with one trial, written by hand. Never edited: it stands for the files
-- that are out there.
PRAGMA application_id = 1735418995;
PRAGMA user_version = 1;
CREATE TABLE trials(
  id INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE, key TEXT NOT NULL,
  superseded INTEGER NOT NULL, measured_s REAL NOT NULL,
  status TEXT NOT NULL, reason TEXT, model TEXT, method TEXT, device TEXT, backend TEXT,
  threads INTEGER, ranks INTEGER, nodes INTEGER, version TEXT, "commit" TEXT,
  precision TEXT, no_compiler TEXT, precision_substituted INTEGER, parameters INTEGER,
  micro_batch INTEGER, accumulation INTEGER, remainder INTEGER, peak_bytes INTEGER,
  host_bytes INTEGER, live_bytes INTEGER, device_limit_bytes INTEGER,
  host_limit_bytes INTEGER, reduces INTEGER, plan_s REAL, model_flops_per_step REAL,
  exec_flops_per_step REAL, train_flops REAL, pass_s REAL, pass_half_width_s REAL,
  last_pass_s REAL, last_pass_half_width_s REAL, update_s REAL, update_half_width_s REAL,
  warmup_s REAL, step_s REAL, step_half_width_s REAL, days REAL, days_low REAL,
  days_high REAL, tokens_per_s REAL, samples_per_s REAL, peak_flops REAL, mfu REAL, hfu REAL,
  busy_share REAL, loss REAL, norm REAL, resident_bytes INTEGER, runtime_bytes INTEGER,
  time TEXT, host TEXT, system TEXT, kernel TEXT, cpu TEXT, driver TEXT);
CREATE TABLE details(
  id INTEGER PRIMARY KEY REFERENCES trials(id) ON DELETE CASCADE, key_text TEXT NOT NULL,
  samples TEXT NOT NULL, bytes TEXT NOT NULL, host_parts TEXT NOT NULL,
  profile TEXT NOT NULL);
CREATE INDEX trials_key ON trials(key);

INSERT INTO trials(id, digest, key, superseded, measured_s, status, reason, model, method, device,
  backend, threads, ranks, nodes, version, "commit", precision, no_compiler, precision_substituted,
  parameters, micro_batch, accumulation, remainder, peak_bytes, days, days_low, days_high, time, host,
  system, kernel, cpu, driver, plan_s, model_flops_per_step, exec_flops_per_step, train_flops, pass_s,
  pass_half_width_s, last_pass_s, last_pass_half_width_s, update_s, update_half_width_s, warmup_s,
  step_s, step_half_width_s, tokens_per_s, samples_per_s, peak_flops, mfu, hfu, busy_share, loss,
  norm)
VALUES(1, 'd', '0123456789abcdef0123456789abcdef', 0, 4.5, 'ok', '', 'pythia-14m', 'naive', 'a CPU',
  'cpu', 2, 1, 1, '0.1.0', 'abc', 'bf16', '', 0, 14067712, 4, 256, 0, 123456789, 12.625, 12.5, 12.75,
  '2024-05-01T00:00:00.000Z', 'lab1', 'Debian', 'Linux 6', 'a CPU', '', 0.1, 1e12, 1e12,
  8.64e16, 0.049, 0.0, 0.0, 0.0, 0.081, 0.0, 0.5, 12.625, 0.125, 1024 / 12.625 * 2048, 1024 / 12.625,
  0.0, 0.0, 0.0, -1.0, 10.5, 1.25);
INSERT INTO details(id, key_text, samples, bytes, host_parts, profile)
VALUES(1, 'model=pythia-14m',
  '{"pass_ns":[48999999,49000000,49000001],"last_pass_ns":[],"update_ns":[80999999,81000000,81000001]}',
  '{"parameters":1,"gradients":2,"optimizer":3,"activations":4,"workspace":5,"inputs":6,"host":7}',
  '{"parameters":0,"gradients":0,"optimizer":0,"activations":0,"workspace":0,"inputs":0}', '[]');
