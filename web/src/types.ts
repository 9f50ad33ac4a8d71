// What the API answers, as far as the dashboard reads it: parts of what the OpenAPI file says (schema.ts is made from it), by the names that
// they have here.

import type * as Schema from "./schema";

export type { Degraded, Doctor, MissRatio, Times } from "./schema";

export type Figures = Record<string, number | null | undefined>;
/** With the figures of the last second, which the stream brings. */
type Live<T> = Omit<T, "now"> & { now?: Figures };

export type Volume = Live<Schema.Volume>;
export type Cluster = NonNullable<Volume["cluster"]>;
export type Policy = Volume["policy"]["requested"];
export type Channel = Schema.ClusterNode["channels"][number];

/** A node: what it says of itself, if it is the one that answers, and what its cluster knows of it, if there is one. */
export type FleetNode = Live<Schema.Fleet["nodes"][number]>;

export interface Fleet {
  nodes: FleetNode[];
  volumes: Volume[];
  degraded: Schema.Degraded[];
}

/** What the doctor has found on a host, in a line. */
export type DoctorSummary = NonNullable<Schema.Node["doctor"]>;
export type Finding = Schema.Doctor["findings"][number];
export type Remedy = NonNullable<Finding["remedies"]>[number];

export type History = Schema.History;
/** Columns of one series: a value for each time, null where nothing was recorded. */
export type Column = History["series"][string];

export type Heat = Schema.HeatMap;
export type Happening = Schema.Event;

/** What the stream sends once a second. */
export interface Point {
  at: number;
  volumes: Record<string, Figures>;
  nodes?: Record<string, Figures>;
}
