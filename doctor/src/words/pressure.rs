//! Words of the checks of what waits: for disks, memory and CPUs, for limits, and in virtual machines; and of where tiers lie.

use super::Row;

/// Sentences of these checks, by their keys.
pub const ROWS: &[Row] = &[
    (
        "psi.io",
        [
            "In {share} of the last minute everything that had work to do waited for I/O, and nothing else went on. The busiest disk is {disk}, busy for {busy} of the time between the two looks.",
            "直近 1 分間の {share} で、実行すべき処理がすべて I/O 待ちになり、他に何も進んでいませんでした。最も混んでいるディスクは {disk} で、2 回の観測の間の {busy} で動作中でした。",
            "최근 1분 중 {share} 동안 할 일이 있는 작업이 모두 I/O를 기다렸고, 그동안 아무것도 진행되지 않았습니다. 가장 바쁜 디스크: {disk}(두 번 보는 사이 {busy} 동작).",
        ],
    ),
    (
        "psi.io-help",
        [
            "spread the load of that disk, or put a faster tier before it; forebay doctor watch shows what it does",
            "そのディスクの負荷を分散するか、前段により速いティアを置いてください。動作は forebay doctor watch で確認できます",
            "그 디스크의 부하를 나누거나 더 빠른 티어를 앞에 두십시오. 동작은 forebay doctor watch로 볼 수 있습니다",
        ],
    ),
    (
        "psi.not-shown",
        [
            "share of the last minute that counts as waiting; what waits is not shown here. top and pidstat -d 5 name the programs",
            "直近 1 分間のうち待ちとされた割合です。何が待っているかはここからは分かりません。top や pidstat -d 5 でプログラムを確認できます",
            "최근 1분 중 기다린 것으로 집계된 비율입니다. 무엇이 기다리는지는 여기서 알 수 없습니다. top과 pidstat -d 5로 프로그램을 확인할 수 있습니다",
        ],
    ),
    (
        "psi.memory",
        [
            "In {share} of the last minute everything that had work to do waited for memory: pages were reclaimed or read back, instead of work being done.",
            "直近 1 分間の {share} で、実行すべき処理がすべてメモリ待ちになりました。本来の処理の代わりに、ページの回収や読み戻しが行われていました。",
            "최근 1분 중 {share} 동안 할 일이 있는 작업이 모두 메모리를 기다렸습니다. 작업 대신 페이지를 회수하거나 다시 읽었습니다.",
        ],
    ),
    (
        "psi.memory-help",
        [
            "give the host more RAM, or its programs smaller limits",
            "RAM を増やすか、プログラムのメモリ上限を下げてください",
            "RAM을 늘리거나 프로그램의 메모리 한도를 낮추십시오",
        ],
    ),
    (
        "psi.cpu",
        [
            "In {share} of the last minute something that could run waited for a CPU; the busiest one (CPU {cpu}) was busy for {busy} of the time between the two looks.",
            "直近 1 分間の {share} で、実行可能な処理が CPU の空きを待っていました。最も混んでいる CPU {cpu} は、2 回の観測の間の {busy} で動作中でした。",
            "최근 1분 중 {share} 동안 실행할 수 있는 작업이 CPU를 기다렸습니다. 가장 바쁜 CPU: {cpu}번(두 번 보는 사이 {busy} 동작).",
        ],
    ),
    (
        "psi.cpu-help",
        [
            "move other work away from this host, or give it more CPUs",
            "他の処理を別のホストに移すか、CPU を増やしてください",
            "다른 작업을 다른 호스트로 옮기거나 CPU를 늘리십시오",
        ],
    ),
    (
        "psi.fine",
        [
            "Pressure (PSI), share of the last minute: {shares}.",
            "プレッシャー（PSI）、直近 1 分間の割合：{shares}。",
            "압박(PSI), 최근 1분 중 비율: {shares}.",
        ],
    ),
    (
        "swap.now",
        [
            "The host swaps: {in} pages/s come back from swap and {out} pages/s go there. Whoever needs a page that comes back waits for a disk.",
            "ホストがスワップしています：毎秒 {in} ページが読み戻され、毎秒 {out} ページが書き出されています。読み戻されるページを使う側はディスクを待ちます。",
            "호스트가 스왑하고 있습니다. 초당 {in}페이지가 돌아오고 초당 {out}페이지가 나갑니다. 돌아오는 페이지가 필요한 쪽은 디스크를 기다립니다.",
        ],
    ),
    (
        "swap.zram",
        [
            "The host swaps to compressed memory (zram): {in} pages/s are unpacked and {out} pages/s are packed, which costs CPU time and no disk.",
            "ホストが圧縮メモリ（zram）にスワップしています：毎秒 {in} ページを展開し、毎秒 {out} ページを圧縮しています。ディスクは使いませんが CPU 時間を消費します。",
            "호스트가 압축 메모리(zram)로 스왑하고 있습니다. 초당 {in}페이지를 풀고 초당 {out}페이지를 압축합니다. 디스크는 쓰지 않지만 CPU 시간이 듭니다.",
        ],
    ),
    (
        "swap.help",
        [
            "find what takes the memory (smem, systemd-cgtop), give it a limit, or give the host more RAM",
            "メモリを占めているものを調べ（smem、systemd-cgtop）、上限を設けるか、RAM を増やしてください",
            "무엇이 메모리를 차지하는지 찾아(smem, systemd-cgtop) 한도를 두거나 RAM을 늘리십시오",
        ],
    ),
    (
        "swap.fine",
        [
            "Swap: {in} pages/s came back and {out} pages/s went out between the two looks.",
            "スワップ：2 回の観測の間に、毎秒 {in} ページが読み戻され、毎秒 {out} ページが書き出されました。",
            "스왑: 두 번 보는 사이에 초당 {in}페이지가 돌아오고 초당 {out}페이지가 나갔습니다.",
        ],
    ),
    (
        "swap.server",
        [
            "{bytes} of the memory of {server} lie in swap: a request that needs them waits until they are read back.",
            "{server} のメモリのうち {bytes} がスワップにあります。それを必要とする要求は、読み戻されるまで待ちます。",
            "{server} 프로세스의 메모리 중 {bytes} 분량이 스왑에 있습니다. 그것이 필요한 요청은 다시 읽을 때까지 기다립니다.",
        ],
    ),
    (
        "swap.server-help",
        [
            "free memory, then bring it back (swapoff -a, then swapon -a), and keep the service out of swap (MemorySwapMax=0 of its unit)",
            "メモリを空けてから読み戻し（swapoff -a の後に swapon -a）、サービスをスワップさせないようにしてください（ユニットの MemorySwapMax=0）",
            "메모리를 비운 뒤 되돌리고(swapoff -a 후 swapon -a), 서비스가 스왑되지 않게 하십시오(유닛의 MemorySwapMax=0)",
        ],
    ),
    (
        "cgroup.memory",
        [
            "The control group {group} of {server} reached its limit of {limit} of memory {times} times between the two looks: the kernel takes pages from it, its page cache first.",
            "{server} の制御グループ {group} は、2 回の観測の間にメモリ上限 {limit} に {times} 回達しました。カーネルはそこからページを、まずページキャッシュから回収します。",
            "{server} 프로세스의 제어 그룹 {group}: 두 번 보는 사이에 메모리 한도 {limit}에 {times}번 도달했습니다. 커널은 그 그룹의 페이지를, 먼저 페이지 캐시부터 회수합니다.",
        ],
    ),
    (
        "cgroup.memory-high",
        [
            "The control group {group} of {server} was above its memory.high of {limit} {times} times between the two looks: its processes are slowed down until they are below.",
            "{server} の制御グループ {group} は、2 回の観測の間に memory.high の {limit} を {times} 回超えました。下回るまで、そのプロセスは減速されます。",
            "{server} 프로세스의 제어 그룹 {group}: 두 번 보는 사이에 memory.high의 {limit} 선을 {times}번 넘었습니다. 그 아래로 내려갈 때까지 프로세스가 느려집니다.",
        ],
    ),
    (
        "cgroup.memory-near",
        [
            "The control group {group} of {server} uses {current} of its limit of {limit} of memory, its page cache counted, while the host could give {available} more: it can cache no more of what it serves.",
            "{server} の制御グループ {group} は、メモリ上限 {limit} のうち {current} を使っています（ページキャッシュを含む）。ホストにはまだ {available} の余裕がありますが、提供するデータをこれ以上キャッシュできません。",
            "{server} 프로세스의 제어 그룹 {group}: 메모리 한도 {limit} 중 {current} 사용 중(페이지 캐시 포함). 호스트에는 {available} 여유가 더 있지만, 제공하는 데이터를 더 캐시할 수 없습니다.",
        ],
    ),
    (
        "cgroup.killed",
        [
            "{killed} processes of the control group {group} ({server}) were killed for want of memory between the two looks; the group has a limit of memory.",
            "制御グループ {group}（{server}）では、2 回の観測の間に {killed} 個のプロセスがメモリ不足で強制終了されました。このグループにはメモリ上限があります。",
            "제어 그룹 {group}({server})에서는 두 번 보는 사이에 프로세스 {killed}개가 메모리 부족으로 강제 종료되었습니다. 이 그룹에는 메모리 한도가 있습니다.",
        ],
    ),
    (
        "cgroup.cpu",
        [
            "The control group {group} of {server} was stopped in {stopped} of {periods} periods between the two looks, because it had used its limit of CPU time.",
            "{server} の制御グループ {group} は CPU 時間の上限を使い切り、2 回の観測の間の {periods} 周期のうち {stopped} 周期で停止させられました。",
            "{server} 프로세스의 제어 그룹 {group}: CPU 시간 한도를 다 써서, 두 번 보는 사이의 {periods}주기 중 {stopped}주기에 멈춰졌습니다.",
        ],
    ),
    (
        "cgroup.disk",
        [
            "The control group {group} of {server} may use the disk {disk} no faster than this: {limits}.",
            "{server} の制御グループ {group} によるディスク {disk} の使用は、次の値に制限されています：{limits}。",
            "{server} 프로세스의 제어 그룹 {group}: 디스크 {disk} 사용이 다음으로 제한됩니다: {limits}.",
        ],
    ),
    (
        "cgroup.old-kernel",
        [
            "Linux 5.2 and newer count how often the limit is reached",
            "上限に達した回数は Linux 5.2 以降で数えられます",
            "한도에 도달한 횟수는 Linux 5.2부터 집계됩니다",
        ],
    ),
    (
        "cgroup.help",
        [
            "raise this limit, or take it away, in the unit or in what starts the service",
            "ユニットまたはサービスを起動する側で、この上限を引き上げるか、外してください",
            "유닛이나 서비스를 시작하는 쪽에서 이 한도를 올리거나 없애십시오",
        ],
    ),
    (
        "cgroup.fine",
        [
            "Control groups: {groups} that bound {servers} were looked at, and no limit held a server back between the two looks.",
            "制御グループ：{servers} に関わる {groups} 個を調べ、2 回の観測の間に上限に妨げられたサーバーはありませんでした。",
            "제어 그룹: {servers}에 관계된 {groups}개를 살폈고, 두 번 보는 사이에 한도에 막힌 서버는 없었습니다.",
        ],
    ),
    (
        "guests.flushed",
        [
            "Each write to {disks} disks of virtual machines ({guests}) is flushed to the host's disk before the guest is told that it is done.",
            "仮想マシン（{guests}）のディスク {disks} 個では、書き込みのたびにホストのディスクへフラッシュされ、それが済むまでゲストに完了が伝えられません。",
            "가상 머신({guests})의 디스크 {disks}개에서는 쓸 때마다 호스트의 디스크로 플러시한 뒤에야 게스트에 완료를 알립니다.",
        ],
    ),
    (
        "guests.flushed-help",
        [
            "set cache=none (direct, with the guest's own flushes), which is as safe for guests that flush, as all of today do",
            "cache=none（ダイレクト、フラッシュはゲストに任せる）にしてください。フラッシュを行うゲスト（現在のものはすべて該当）では安全性は変わりません",
            "cache=none(직접 접근, 플러시는 게스트에 맡김)으로 설정하십시오. 플러시를 하는 게스트(요즘 것은 모두 해당)라면 똑같이 안전합니다",
        ],
    ),
    (
        "guests.unsafe",
        [
            "Flushes of {disks} disks of virtual machines ({guests}) are left out: when the host fails, what the guest had been told is on disk can be lost, and its file system damaged.",
            "仮想マシン（{guests}）のディスク {disks} 個で、フラッシュが省かれています。ホストが落ちると、ディスクに書かれたとゲストに伝えたデータが失われ、ファイルシステムが壊れることがあります。",
            "가상 머신({guests})의 디스크 {disks}개에서 플러시가 생략됩니다. 호스트에 장애가 나면 디스크에 썼다고 게스트에 알린 데이터가 사라지고 파일 시스템이 손상될 수 있습니다.",
        ],
    ),
    (
        "guests.unsafe-help",
        [
            "set cache=none or cache=writeback, unless the disks may be lost at any time",
            "いつ失われてもよいディスクでなければ、cache=none または cache=writeback にしてください",
            "언제 잃어도 되는 디스크가 아니라면 cache=none 또는 cache=writeback으로 설정하십시오",
        ],
    ),
    (
        "guests.threads",
        [
            "Requests of {disks} disks of virtual machines ({guests}) that pass by the page cache are handed to threads (aio=threads), which cost two switches of threads for each.",
            "仮想マシン（{guests}）のディスク {disks} 個では、ページキャッシュを通らない要求がスレッドに渡され（aio=threads）、要求ごとにスレッドの切り替えが 2 回かかります。",
            "가상 머신({guests})의 디스크 {disks}개에서는 페이지 캐시를 거치지 않는 요청이 스레드로 넘겨져(aio=threads) 요청마다 스레드 전환이 두 번 듭니다.",
        ],
    ),
    (
        "guests.threads-help",
        [
            "set aio=io_uring (QEMU 5.0 and Linux 5.1, or newer), or aio=native, which the kernel serves itself",
            "aio=io_uring（QEMU 5.0 と Linux 5.1 以降）または aio=native にしてください。カーネルが直接処理します",
            "aio=io_uring(QEMU 5.0과 Linux 5.1 이상) 또는 aio=native로 설정하십시오. 커널이 직접 처리합니다",
        ],
    ),
    (
        "guests.iothread",
        [
            "Requests of {disks} disks of virtual machines ({guests}) go through QEMU's main thread, which serves all else of the machine as well.",
            "仮想マシン（{guests}）のディスク {disks} 個の要求は QEMU のメインスレッドを通ります。このスレッドは仮想マシンの他のすべても処理します。",
            "가상 머신({guests})의 디스크 {disks}개의 요청은 QEMU의 메인 스레드를 거칩니다. 이 스레드는 가상 머신의 다른 일도 모두 처리합니다.",
        ],
    ),
    (
        "guests.iothread-help",
        [
            "give each busy disk an iothread (libvirt: <iothreads>, and iothread= at the driver; Proxmox: VirtIO SCSI single and iothread=1)",
            "負荷の高いディスクごとに iothread を割り当ててください（libvirt：<iothreads> とドライバーの iothread=、Proxmox：VirtIO SCSI single と iothread=1）",
            "바쁜 디스크마다 iothread를 주십시오(libvirt: <iothreads>와 드라이버의 iothread=, Proxmox: VirtIO SCSI single과 iothread=1)",
        ],
    ),
    (
        "guests.partly",
        [
            "its command line is longer than what is read, or names disks that were added while it ran: ask QEMU (query-block)",
            "コマンドラインが読み取れる長さを超えているか、実行中に追加されたディスクを指しています。QEMU に問い合わせてください（query-block）",
            "명령줄이 읽을 수 있는 길이를 넘거나 실행 중에 추가된 디스크를 가리킵니다. QEMU에 물어보십시오(query-block)",
        ],
    ),
    (
        "guests.fine",
        [
            "Virtual machines: {disks} disks of {guests} machines; none has each write flushed, leaves flushes out, or hands requests that pass by the page cache to threads, and none is known to lack a thread of its own that it could have.",
            "仮想マシン：{guests} 台のディスク {disks} 個。書き込みのたびのフラッシュ、フラッシュの省略、ページキャッシュを通らない要求のスレッドへの受け渡しはなく、専用スレッドを持てるのに持たないと分かっているものもありません。",
            "가상 머신: {guests}대의 디스크 {disks}개. 쓸 때마다 플러시하거나, 플러시를 생략하거나, 페이지 캐시를 거치지 않는 요청을 스레드로 넘기는 것이 없고, 전용 스레드를 가질 수 있는데 없다고 확인된 것도 없습니다.",
        ],
    ),
    (
        "guests.queues",
        [
            "In this guest more than four CPUs share a queue of {disks}: the fewest are {queues} queues for {cpus} CPUs, which wait for each other under load.",
            "このゲストでは、{disks} のキュー 1 つを 5 個以上の CPU が共有しています。最も少ないディスクで CPU {cpus} 個にキュー {queues} 個で、負荷時に互いを待ちます。",
            "이 게스트에서는 CPU 다섯 개 이상이 {disks}의 큐 하나를 함께 씁니다. 가장 적은 디스크는 CPU {cpus}개에 큐 {queues}개이며, 부하가 걸리면 서로 기다립니다.",
        ],
    ),
    (
        "guests.queues-help",
        [
            "whoever runs this guest can give the disk more queues (QEMU: num-queues; libvirt: queues= at the driver)",
            "このゲストの管理者がディスクのキューを増やせます（QEMU：num-queues、libvirt：ドライバーの queues=）",
            "이 게스트를 운영하는 쪽에서 디스크의 큐를 늘릴 수 있습니다(QEMU: num-queues, libvirt: 드라이버의 queues=)",
        ],
    ),
    (
        "guests.queues-fine",
        [
            "Queues of this guest's disks: {disks} disks, the fewest with {queues} queues for {cpus} CPUs.",
            "このゲストのディスクのキュー：ディスク {disks} 個、最も少ないもので CPU {cpus} 個にキュー {queues} 個です。",
            "이 게스트 디스크의 큐: 디스크 {disks}개, 가장 적은 것이 CPU {cpus}개에 큐 {queues}개입니다.",
        ],
    ),
    (
        "tiers.same",
        [
            "The tier of the volume {volume} lies on the disk of its own backing ({disks}): each byte is written to it twice, and reads of both wait for each other.",
            "ボリューム {volume} のティアが、自身のバッキングと同じディスク（{disks}）にあります。同じバイトが 2 回書かれ、両者の読み出しが互いを待ちます。",
            "볼륨 {volume}의 티어가 자기 백킹과 같은 디스크({disks})에 있습니다. 같은 바이트를 두 번 쓰고, 양쪽의 읽기가 서로 기다립니다.",
        ],
    ),
    (
        "tiers.slower",
        [
            "The tier of the volume {volume} lies on {disks}, of a slower kind than the disks of its backing ({backing}): the tier makes it slower.",
            "ボリューム {volume} のティアは {disks} にあり、バッキングのディスク（{backing}）より遅い種類です。ティアがかえって遅くします。",
            "볼륨 {volume}의 티어는 {disks}에 있으며, 백킹의 디스크({backing})보다 느린 종류입니다. 티어가 오히려 느리게 만듭니다.",
        ],
    ),
    (
        "tiers.help",
        [
            "put the tier on a disk of its own that is faster than the backing, such as an NVMe device",
            "ティアを、NVMe デバイスなどバッキングより速い専用のディスクに置いてください",
            "NVMe 장치처럼 백킹보다 빠른 별도의 디스크에 티어를 두십시오",
        ],
    ),
    (
        "tiers.fine",
        [
            "Tiers: {count} on flash, each on other disks than its backing, and none on disks that are of a slower kind as far as their kind is known.",
            "ティア：フラッシュ上の {count} 個。いずれもバッキングとは別のディスクにあり、種類が分かる範囲で、より遅い種類のディスクにあるものはありません。",
            "티어: 플래시 위의 {count}개. 모두 백킹과 다른 디스크에 있고, 종류를 아는 범위에서 더 느린 종류의 디스크에 있는 것은 없습니다.",
        ],
    ),
];
