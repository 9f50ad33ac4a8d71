// What the API answers, as far as the dashboard reads it; node/src/api/openapi.json has all of it.

export type Policy = "through" | "back";

export interface Member {
  node: string;
  role: string;
  lag?: number;
  tier?: string;
}

export interface Cluster {
  state: string;
  reason: string;
  owner: string;
  owner_reason?: string;
  peers: number;
  min_peers: number;
  members: Member[];
  missing_replicas?: { node: string; why?: string }[];
  unfenced: number;
}

export type Figures = Record<string, number | null | undefined>;

export interface Volume {
  name: string;
  description?: string;
  size_bytes: number;
  phase: string;
  problem?: string;
  policy: { requested: Policy; effective: Policy; reason: string; since_s: number };
  backing: { spec: string; access: string; state: string; hold_left_s?: number; error?: string; displaced?: string };
  tier: { kind: string; path: string; size_bytes: number; volatile: boolean; changing?: { to: string; stage: string; left_bytes?: number } };
  destage: { requested: string; effective: string; reason: string; no_journal?: string };
  dirty: {
    bytes: number;
    bytes_max: number;
    groups_waiting: number;
    oldest_s: number;
    destage_bytes_per_s: number;
    drain_s?: number;
    drain_max_s: number;
    waiting_writes: number;
  };
  term: number;
  connections: number;
  counters: Record<string, number>;
  cluster?: Cluster;
  now?: Figures;
}

export interface Channel {
  address?: string;
  phase: string;
  why?: string;
  sent_bytes: number;
  received_bytes: number;
  round_trip_us?: number;
}

/** A node: what it says of itself, if it is the one that answers, and what its cluster knows of it, if there is one. */
export interface FleetNode {
  name: string;
  own: boolean;
  report?: {
    version: string;
    host: string;
    uptime_s: number;
    io_mode: string;
    memory_bytes_max: number;
    state: string;
    nbd: string[];
    doctor?: DoctorSummary;
  };
  cluster?: {
    fault_domain: string;
    addresses: string[];
    up?: boolean;
    channels: Channel[];
    compression?: { now: string; reason?: string; saved_bytes: number; ratio?: number };
    evacuation?: { state: string; keeps: { volume: string; role: string; why: string }[] };
  };
  now?: Figures;
}

export interface Degraded {
  volume?: string;
  node?: string;
  code: string;
  text: string;
  since_s?: number;
}

export interface Fleet {
  nodes: FleetNode[];
  volumes: Volume[];
  degraded: Degraded[];
}

/** What the doctor has found on a host, in a line. */
export interface DoctorSummary {
  /** When the last look ended that saw something; left out before the first. */
  at?: string;
  errors: number;
  warnings: number;
  notes: number;
  /** Why the last look failed, if it did. */
  problem?: string;
}

export type Remedy = { kind: "apply"; writes: { path: string; value: string }[] } | { kind: "explain"; command?: string };

export interface Finding {
  id: string;
  severity: "error" | "warning" | "note";
  confidence: "certain" | "computed" | "likely";
  says: string;
  since: string;
  evidence: { source: string; value: string }[];
  number?: { is: number; could_be: number; unit: string };
  remedies?: Remedy[];
  /** What each remedy says. */
  help: string[];
}

/** What it has found, in the language that was asked for. */
export interface Doctor {
  at: string;
  took_s: number;
  /** Why the last look failed, if it did; then what is here is of the one before. */
  problem?: string;
  findings: Finding[];
  fine: { word: string; says: string }[];
  hidden: { word: string; what: string; how: string }[];
}

/** Columns of one series: a value for each time, null where nothing was recorded. */
export interface Column {
  avg: (number | null)[];
  min?: (number | null)[];
  max?: (number | null)[];
}

export interface History {
  from: number;
  to: number;
  step_s: number;
  at: number[];
  series: Record<string, Column>;
}

/** The times of many requests. */
export interface Times {
  count: number;
  mean_us: number | null;
  p50_us: number | null;
  p90_us: number | null;
  p99_us: number | null;
  p999_us: number | null;
  max_us: number | null;
}

type Legs = Record<"client" | "local" | "network" | "backing", Times>;

export interface Heat {
  /** Largest request of a class. */
  sizes: number[];
  /** A request of a class took less. */
  latencies_us: number[];
  reads: number[][];
  writes: number[][];
  sequential: { reads: { ratio: number | null }; writes: { ratio: number | null } };
  legs: { read: Legs; write: Legs };
  flush: Times;
  destage: Times;
}

export interface MissRatio {
  cache_bytes: number | null;
  points: { cache_bytes: number; hit_ratio: number | null }[];
  working_set_bytes: number | null;
}

export interface Happening {
  id: number;
  at: string;
  node?: string;
  volume?: string;
  kind: string;
  severity: "info" | "warning" | "error";
  text: string;
  details?: Record<string, unknown>;
}

/** What the stream sends once a second. */
export interface Point {
  at: number;
  volumes: Record<string, Figures>;
  nodes?: Record<string, Figures>;
}
