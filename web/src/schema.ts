// Made from node/src/http/openapi.json by `npm run build`: change that.

/** That identities of a node count no more, as the cluster's authority has signed it (`forebay node revoke`) */
export type Revocation = {
  /** its layout, which is 1 */
  version: number;
  /** name of the node */
  name: string;
  /** what the authority has made for the name up to then counts no more: in seconds since 1970, by the authority's clock */
  until_s: number;
  /** the authority's signature, as base64 */
  signature: string;
};

export type Caller = {
  role?: "admin" | "read-only" | null;
  by?: "unix-socket" | "token" | "certificate" | "session" | "loopback" | null;
};

export type Node = {
  /** of a node of a cluster as that knows it, else of the host */
  name: string;
  version: string;
  host: string;
  pid: number;
  uptime_s: number;
  io_mode: "uring" | "threads";
  io_why: string;
  shards: number;
  /** bound on the daemon's memory, arenas included */
  memory_bytes_max: number;
  state: string;
  nbd: string[];
  /** where the dashboard is; left out where it is not served over TCP */
  page?: string;
  /** why the address that the config gives the dashboard is not listened on yet, which is tried again; left out where it is, or none was given */
  no_page?: string;
  volumes: number;
  /** what should be done about the cluster's etcd, before nothing can be changed there any more; left out where there is nothing */
  coordinator?: {
    /** etcd-no-space, etcd-corrupt, etcd-alarm or etcd-nearly-full */
    code: string;
    /** which member, what, and what to do */
    text: string;
  }[];
  /** what is not as it should be with this node and those that it is linked to; left out where all is well */
  degraded?: Degraded[];
  /** keys of the cluster's coordinator whose values this node does not use, and why; left out where there are none */
  not_used?: {
    key: string;
    why: string;
  }[];
  history: {
    /** what fails, on what, and what to do; left out while all is well */
    problem?: string;
    /** points and events that were not written since the daemon's start */
    dropped: number;
    files: number;
    /** what they take of the disk */
    bytes: number;
    /** damaged files that were put aside, and why */
    put_aside?: string[];
  };
  /** on which NUMA nodes its data path is, and why */
  placement: {
    /** threads and memory have a node each; else the kernel places them */
    placed: boolean;
    /** why nothing is placed */
    why?: string;
    /** what was looked at; left out where nothing was */
    devices?: {
      /** as the kernel calls it */
      name: string;
      role: "link" | "client" | "tier";
      /** left out where the kernel does not know, or it is at several */
      node?: number;
    }[];
    /** the data-path threads, where they are placed; links are the first one's */
    threads?: {
      shard: number;
      node: number;
      /** as the kernel writes them: 0-3,8 */
      cpus: string;
      /** where its memory comes from, as long as there is room; left out where none near by may be used */
      memory_node?: number;
      why: string;
      /** what could not be done; left out while all is well */
      problem?: string;
    }[];
    /** where the volumes' memory is in truth, where it was to be somewhere */
    memory?: {
      volume: string;
      /** where it is to be */
      node: number;
      /** pages that were looked at, some all over it, by node */
      pages: Record<string, number>;
      /** more than a fifth of them is on other nodes */
      elsewhere: boolean;
    }[];
  };
  /** what its doctor has found when it last saw something; left out before the first look */
  doctor?: {
    /** RFC 3339; left out while no look has succeeded */
    at?: string;
    errors: number;
    warnings: number;
    notes: number;
    /** checks that could not look */
    hidden: number;
    /** why the last look failed, if it did */
    problem?: string;
  };
};

export type Volume = {
  name: string;
  /** identity */
  volume: string;
  size_bytes: number;
  phase: "waiting" | "recovering" | "following" | "agreeing" | "elsewhere" | "serving" | "stopping" | "stopped" | "failed";
  /** why it is failed */
  problem?: string;
  policy: {
    requested: "through" | "back";
    effective: "through" | "back";
    reason: "as-requested" | "draining" | "drained-through" | "too-few-peers" | "tier-error" | "stopping" | "owned-elsewhere";
    since_s: number;
  };
  backing: {
    spec: string;
    access: string;
    state: "awaiting-lock" | "replaying-journal" | "awaiting-fence" | "ready" | "held" | "failing" | "closed";
    /** time until a hold ends by itself, while the state is held */
    hold_left_s?: number;
    error?: string;
    /** what became of the image, while it is not at its path: it was deleted, moved or replaced */
    displaced?: string;
  };
  tier: {
    kind: "memory" | "flash";
    path: string;
    size_bytes: number;
    volatile: boolean;
    /** how far a change of its medium is, while there is one */
    changing?: {
      to: "memory" | "flash";
      stage: "preparing" | "draining" | "switching" | "members";
      /** what the backing must have first */
      left_bytes?: number;
      /** nodes whose copies are on the former medium still, the owner last */
      nodes?: string[];
      /** what it waits for, where that is not plain */
      waits?: string;
    };
  };
  /** number of its owner, one more with each start */
  term: number;
  connections: number;
  clients: Clients;
  /** what it is for, in the words of whoever has it */
  description?: string;
  /** RAM for its frames besides a memory tier */
  memory_bytes: number;
  /** How barrier groups reach the backing */
  destage: {
    requested: "ordered" | "journaled" | "auto";
    effective: "ordered" | "journaled";
    reason: "as-requested" | "no-journal" | "policy-through" | "tier-error" | "nothing-to-merge" | "small-groups" | "large-groups" | "backlog-grows";
    /** mean size of the groups that clients make */
    group_bytes_mean: number;
    /** where the journal lies or would lie */
    journal?: string;
    /** why there is no place for one */
    no_journal?: string;
    /** 0 while there is none */
    journal_bytes: number;
  };
  dirty: {
    bytes: number;
    bytes_max: number;
    dead_bytes: number;
    clean_bytes: number;
    groups_waiting: number;
    oldest_s: number;
    destage_bytes_per_s: number;
    /** absent while the backing's speed is not known */
    drain_s?: number;
    /** time to drain at which writes are slowed to the backing's speed; 0 = no such limit */
    drain_max_s: number;
    waiting_writes: number;
  };
  /** Log positions */
  positions: {
    accepted: number;
    held: number;
    synced: number;
    destaged: number;
  };
  /** Counters since the daemon's start */
  counters: Record<string, number>;
  /** Of a volume of the cluster: who owns it, and who keeps its log, as this node sees it */
  cluster?: {
    state: "no-member" | "learner" | "following" | "sealed" | "agreeing" | "owner" | "custodian" | "stepping-down";
    reason: "as-it-should-be" | "reading-record" | "no-record" | "coordinator-away" | "record-went-back" | "awaiting-answers" | "released" | "not-named" | "earlier-life" | "unsynced-lost" | "loss-suspected" | "log-not-needed" | "tier-failed" | "log-went-back" | "owner-silent" | "sealing-members" | "awaiting-members" | "awaiting-backing" | "awaiting-lease" | "change-undecided" | "no-lease" | "unfenced" | "too-few-members" | "backing-out-of-reach" | "handing-over" | "releasing";
    since_s: number;
    owner: string;
    /** what the owner waits for, as it has told: a code as in `reason`; absent at the owner itself */
    owner_reason?: "as-it-should-be" | "reading-record" | "no-record" | "coordinator-away" | "record-went-back" | "awaiting-answers" | "released" | "not-named" | "earlier-life" | "unsynced-lost" | "loss-suspected" | "log-not-needed" | "tier-failed" | "log-went-back" | "owner-silent" | "sealing-members" | "awaiting-members" | "awaiting-backing" | "awaiting-lease" | "change-undecided" | "no-lease" | "unfenced" | "too-few-members" | "backing-out-of-reach" | "handing-over" | "releasing";
    /** for how long */
    owner_since_s?: number;
    /** how long ago the owner has told this, the policy with its reason, the members' lag, the backing's state and what is dirty */
    told_ago_s?: number;
    term: number;
    epoch: number;
    log: "needed" | "through" | "released" | "unknown";
    peers: number;
    min_peers: number;
    members: {
      node: string;
      role: "owner" | "member" | "learner";
      /** records that the owner has and this one is not known to have */
      lag?: number;
      /** medium of its log, as far as this node knows it: the owner knows that of all */
      tier?: "memory" | "flash";
    }[];
    /** where there are fewer copies than asked for: nodes that keep none, and why, as far as it is known */
    missing_replicas?: {
      node: string;
      why: string;
    }[];
    /** former owners that may still write to the backing */
    unfenced: number;
    /** the newest record that this node has seen; shown where the coordinator shows less, or nodes are waited for since it did */
    known?: {
      term: number;
      epoch: number;
      owner: string;
      /** what the coordinator shows, if that is older */
      shown_term?: number;
      shown_epoch?: number;
      /** nodes that have not said what they know since the coordinator went back */
      unheard?: string[];
    };
    /** where clients reach it, whichever node serves it */
    address?: {
      address: string;
      interface?: string;
      state: "here" | "elsewhere" | "failed";
      problem?: string;
    };
    /** what keeps former owners from writing to the backing, or shows that they do no more */
    fence?: {
      /** what there is about that other node about which there is least */
      class: "fence" | "evidence" | "detection";
      /** what the volume may do on the strength of it */
      allows: string;
      means: {
        means: "reservation" | "power" | "watchdog" | "image-lock";
        /** the node that it is about, or `every node` */
        of: string;
        /** the fence agent, or the hardware */
        by?: string;
        class: "fence" | "evidence" | "detection";
        /** what is certain once it has succeeded */
        proves: string;
        /** what is not */
        leaves: string;
        /** when a fence was last proven: from this node; a watchdog: by the node that has it */
        last_proven_unix_s?: number;
      }[];
      /** former owners about whom there is no proof yet */
      former: {
        term: number;
        node: string;
        /** for how long this node has looked for proof */
        waiting_s: number;
        /** why there is none, in the words of each means */
        why: string[];
      }[];
    };
    /** How often each step of the protocol was taken on this node since its start */
    counters?: Record<string, number>;
    /** clients of this node while another one owns the volume; counts since the daemon's start */
    forwarding?: {
      /** the owner has let this node in, as it does when there is a client */
      connected?: boolean;
      /** clients now */
      clients?: number;
      /** requests that no owner has answered yet */
      waiting?: number;
      /** requests forwarded */
      requests?: number;
      /** bytes of reads and writes among them */
      bytes?: number;
      /** requests that were asked again, of another owner or by another connection */
      again?: number;
    };
    /** nodes whose clients' requests come here */
    forwarders?: string[];
    /** reads from the cache of the owner that has handed over, before the backing; counts are blocks, of this term; there while it is asked */
    predecessor_cache?: {
      /** the former owner */
      node?: string;
      /** found there */
      hits?: number;
      /** not there, or not in time: read from the backing */
      misses?: number;
      /** it is asked for so long at most */
      left_s?: number;
    };
    /** what logs are worth of all that a flush was answered for, when every member loses its power */
    flushed?: "durable" | "held" | "unrecorded";
    /** nodes that have lost what their medium had not synced */
    left?: string[];
  };
};

export type VolumeSpec = {
  /** 1 to 63 letters, digits, '.', '_' or '-' */
  name: string;
  /** file or block device by its absolute path, or NBD URI (nbd://, nbd+unix://), with slow: or faulty: before it */
  backing: string;
  size?: number | string;
  /** make a missing backing file */
  create?: boolean;
  policy?: "through" | "back";
  /** seconds that the log may take to drain before writes are slowed to the backing's speed; 0 = as long as the tier has room */
  drain_max_s?: number;
  tier?: "memory" | "flash";
  /** a host crash may lose what is not destaged: demanded for a memory tier */
  volatile?: boolean;
  tier_size?: number | string;
  tier_path?: string;
  /** RAM for staging and read cache before a flash tier */
  memory?: number | string;
  destage?: "ordered" | "journaled" | "auto";
  /** both areas of the journal beside the image: a multiple of 8K from 2M to 8G */
  journal_size?: number | string;
  format?: "raw";
  adopt_changed_backing?: boolean;
  /** the image is the one that the tier's writes belong to, in its newest state, although it cannot be told from another one */
  same_image?: boolean;
  /** copies of the log on other nodes of the cluster; left out: a volume of this node alone */
  peers?: number;
  /** with fewer of them the backing must have each write as well */
  min_peers?: number;
  /** what a flush promises: on the media of all members, held by all of them, or in the backing; auto: media while all tiers are on flash, else replicated */
  flush?: "auto" | "media" | "replicated" | "destage";
  /** where clients reach it, such as 10.0.0.50/24: an address that moves to whichever node of the cluster serves it */
  address?: string;
  /** the interface that gets the address; left out: the one that has an address of the same network */
  interface?: string;
  /** each owner reserves the backing's device before it writes, so that a successor can expel it */
  reserve?: boolean;
  clients?: Clients;
  /** what it is for, in one line for people */
  description?: string;
};

/** which clients with certificates may use a volume: any with the role nbd-client, or these alone, by name */
export type Clients = "any" | string[];

/** A node of the cluster */
export type ClusterNode = {
  name: string;
  node: string;
  own: boolean;
  fault_domain: string;
  addresses: string[];
  /** the link to it works */
  up?: boolean;
  channels: {
    address?: string;
    phase: "up" | "beginning" | "down";
    why?: string;
    sent_bytes: number;
    received_bytes: number;
    /** Multipath TCP (RFC 8684) at both ends */
    multipath: boolean;
    round_trip_us?: number;
    /** what it was seen to carry */
    bytes_per_s?: number;
    /** messages that it carried because another channel had died with them, or was late */
    resent: number;
    /** times that it has ended, or did not come about */
    failures: number;
  }[];
  /** two daemons run with its identity: what has shown it, and what to do; left out where nothing shows that */
  duplicated?: string;
  /** Compression of what goes there, since the daemon's start; absent of the own node */
  compression?: {
    now: "off" | "lz4" | "zstd";
    /** why it is off */
    reason?: string;
    /** cores that it may take now */
    cores_max: number;
    from_bytes: number;
    to_bytes: number;
    saved_bytes: number;
    ratio?: number;
    /** trials that were of no use included */
    cpu_s: number;
  };
  /** the operator is about to stop the node: it is to own nothing and keep no copy that another node can keep */
  evacuation?: {
    state: "evacuating" | "evacuated";
    /** milliseconds since 1970 */
    since_ms: number;
    keeps: {
      volume: string;
      role: "owner" | "member" | "unknown";
      /** what is done about it, or what keeps it there */
      why: string;
      /** no other node can have it */
      stays: boolean;
    }[];
  };
};

export type AuditLine = {
  /** by the clock of the node that was told */
  at_ms: number;
  /** the node that was told */
  node: string;
  /** the volume, if it is about one */
  volume?: string;
  action: "accept-loss" | "fenced" | "restore-record" | "forget-node" | "revoke-identity" | "power-off";
  /** by whom, and what it means */
  words: string;
};

export type Fleet = {
  /** the second that `now` is of, since 1970 */
  at: number;
  nodes: {
    name: string;
    own: boolean;
    report?: Node;
    cluster?: ClusterNode;
    /** by name of the series; what there is not is left out */
    now?: Record<string, number>;
  }[];
  volumes: (Volume & {
    /** by name of the series; what there is not is left out */
    now: Record<string, number>;
  })[];
  degraded: Degraded[];
  totals: {
    volumes?: number;
    size_bytes?: number;
    tier_bytes?: number;
    dirty_bytes?: number;
    connections?: number;
    degraded?: number;
    read_iops?: number;
    write_iops?: number;
    read_bytes_per_s?: number;
    write_bytes_per_s?: number;
    destage_bytes_per_s?: number;
  };
};

/** something that is not as it should be */
export type Degraded = {
  volume?: string;
  node?: string;
  /** a code of Volume.policy.reason, or volume-failed, volume-waiting, backing-failing, awaiting-lock, awaiting-fence, image-displaced, writes-wait, writes-unanswered, too-few-copies, unfenced, link-down, channels-down, duplicate-identity, history-failing, close-hangs, identity-ends, etcd-no-space, etcd-corrupt, etcd-alarm, etcd-nearly-full */
  code: string;
  text: string;
  since_s: number;
};

export type History = {
  volume?: string;
  node?: string;
  from: number;
  to: number;
  step_s: number;
  /** the begin of each step, in seconds since 1970 */
  at: number[];
  series: Record<string, {
    avg: (number | null)[];
    /** smallest of the seconds, rounded down to three digits; left out where a step is one second */
    min?: (number | null)[];
    /** largest of the seconds, rounded up; left out where a step is one second */
    max?: (number | null)[];
  }>;
};

export type Event = {
  /** greater than that of every event before it on this node */
  id: number;
  at: string;
  node: string;
  volume?: string;
  /** daemon-started, daemon-stopped, volume-created, volume-deleted, volume-resized, phase-changed, policy-changed, destage-changed, tier-changed, tier-failed, backing-failing, backing-awaits-fence, backing-ready, hold-begun, hold-ended, image-displaced, image-in-place, throttling-begun, throttling-ended, take-over, hand-over, owner-changed, member-lost, member-joined, link-down, link-up, coordinator-trouble, coordinator-well, history-failing, history-ready, clock-set, doctor-finding, doctor-finding-gone, doctor-failed, board-log */
  kind: string;
  severity: "info" | "warning" | "error";
  text: string;
  details: Record<string, unknown>;
};

/** how long things took, in microseconds; percentiles are at most an eighth too high */
export type Times = {
  count: number;
  mean_us: number | null;
  p50_us: number | null;
  p90_us: number | null;
  p99_us: number | null;
  p999_us: number | null;
  max_us: number | null;
};

export type HeatMap = {
  volume: string;
  /** since 1970; null where nothing was measured */
  from: number | null;
  to: number | null;
  /** largest request of each row */
  sizes: number[];
  /** each column is of what took less; the last has all that is longer, too */
  latencies_us: number[];
  /** a row for each size, in it a count for each latency */
  reads: number[][];
  /** a row for each size, in it a count for each latency */
  writes: number[][];
  sequential: {
    ratio: number | null;
    reads: {
      requests: number;
      bytes: number;
      random_requests: number;
      random_bytes: number;
      ratio: number | null;
    };
    writes: {
      requests: number;
      bytes: number;
      random_requests: number;
      random_bytes: number;
      ratio: number | null;
    };
  };
  legs: {
    read: {
      client: Times;
      local: Times;
      network: Times;
      backing: Times;
      waiting: Times;
    };
    write: {
      client: Times;
      local: Times;
      network: Times;
      backing: Times;
      waiting: Times;
    };
  };
  flush: Times;
  zero: Times;
  destage: Times;
  backing_sync: Times;
};

export type MissRatio = {
  volume: string;
  from: number | null;
  to: number | null;
  /** the cache that there is; null where nothing was measured */
  cache_bytes: number | null;
  points: {
    cache_bytes: number;
    /** null where too little was read to say */
    hit_ratio: number | null;
  }[];
  /** the smallest cache that would hit nearly as much as the largest known */
  working_set_bytes: number | null;
  /** of a larger cache nothing is known but that it hits no less */
  deepest_bytes: number | null;
  blocks_read: number;
};

export type DoctorOfPeer = {
  /** the other node */
  peer: string;
  here: DoctorSide;
  /** left out where the other node did not tell */
  there?: DoctorSide;
  /** why it did not: older, or no-answer with waited_s, linked and down_since, or failed with why */
  silence?: unknown;
  /** when it was asked, and when its answer was here, in milliseconds since 1970 */
  asked_ms: number[];
  pairs: {
    here?: string;
    there?: string;
    path?: string;
    verdict?: string;
  }[];
  /** worst first, as those of Doctor; check is 0 where no check of one host asks the same */
  findings: Record<string, unknown>[];
  fine: Record<string, unknown>[];
  hidden: Record<string, unknown>[];
};

export type DoctorSide = {
  node: string;
  /** version of its Forebay */
  program: string;
  /** when it had looked, by its own clock */
  at_ms: number;
  wants_multipath: boolean;
  channels: {
    own?: string;
    peer?: string;
    up?: boolean;
    multipath?: boolean;
    why?: string;
  }[];
  looked: {
    interfaces?: {
      name?: string;
      mtu?: number;
      hardware?: string;
      speed_mbit?: number;
      full_duplex?: boolean;
      /** its speed is that of a line, and not what a virtual interface says for want of one */
      is_line?: boolean;
      /** ports of the same card, and the state of each */
      rdma?: string[][];
    }[];
    ends?: {
      pair?: {
        own?: string;
        peer?: string;
        port?: number;
        calls?: boolean;
      };
      /** that has the address */
      interface?: string;
      prefix?: number;
      /** the interface by which packets leave */
      leaves_by?: string;
      /** router */
      via?: string;
      /** hardware that packets go to */
      neighbour?: string;
      /** whether packets as large as the interface sends arrive: carried, lost, silent or not-sent */
      probe?: unknown;
      tcp?: {
        connections?: number;
        round_trip_us?: number;
        segments?: number;
        resent?: number;
        path_mtu?: number;
      };
    }[];
    hidden?: string[];
  };
};

export type Doctor = {
  /** when it looked, RFC 3339 */
  at: string;
  took_s: number;
  /** why a later look failed, if one did: what is here is of the one before */
  problem?: string;
  /** worst first */
  findings: {
    /** for forebay doctor --apply */
    id: string;
    /** its number */
    check: number;
    severity: "error" | "warning" | "note";
    confidence: "certain" | "computed" | "likely";
    text: {
      key: string;
      with?: string[][];
    };
    /** the same in words */
    says: string;
    /** what each of its remedies says */
    help: string[];
    /** since when it is there, as far as is known, RFC 3339 */
    since: string;
    evidence: {
      source: string;
      value: string;
    }[];
    number?: {
      is: number;
      could_be: number;
      unit: string;
    };
    remedies?: ({
      kind: "apply";
      what: {
        key: string;
        with?: string[][];
      };
      writes: {
        path: string;
        value: string;
      }[];
    } | {
      kind: "explain";
      what: {
        key: string;
        with?: string[][];
      };
      command?: string;
    })[];
  }[];
  /** what is not the bound */
  fine: {
    /** its number */
    check: number;
    /** first part of the ids of its findings */
    word: string;
    text: {
      key: string;
      with?: string[][];
    };
    /** the same in words */
    says: string;
  }[];
  /** sensors of the board that read a number; left out where no controller could be asked */
  sensors?: {
    sensor: string;
    /** the number as the controller prints it */
    value: string;
    unit: string;
  }[];
  /** entries of the board's event log; left out likewise */
  log_entries?: number;
  /** the newest of them, 64 at most, oldest first, as ipmitool prints them; left out where there is none */
  log_newest?: string[];
  /** what could not be looked at, and what would show it */
  hidden: {
    /** its number */
    check: number;
    /** first part of the ids of its findings */
    word: string;
    what: string;
    text: {
      key: string;
      with?: string[][];
    };
    /** the same in words */
    how: string;
  }[];
};
