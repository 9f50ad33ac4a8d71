//! Words of the checks of PCIe and platform.

use super::Row;

/// Sentences of the checks of PCIe and platform, by their keys.
pub const ROWS: &[Row] = &[
    (
        "pcie.narrow",
        [
            "{device} runs at {now}; the card and the port above it ({port}) can do {possible}: {is} of {could_be}.",
            "{device} は {now} で動作していますが、カードと上位ポート（{port}）は {possible} まで可能です：{could_be} のうち {is}。",
            "{device}은(는) {now}로 동작하지만 카드와 위쪽 포트({port})는 {possible}까지 가능합니다: {could_be} 중 {is}.",
        ],
    ),
    (
        "pcie.narrow-remedy",
        [
            "look at the riser and the slot's contacts, and at the firmware's setting of lanes for this slot (bifurcation); reseat the card",
            "ライザー、スロットの接点、このスロットのレーン設定（ファームウェアの bifurcation）を確認し、カードを挿し直します",
            "라이저와 슬롯 접점, 이 슬롯의 레인 설정(펌웨어의 bifurcation)을 확인하고 카드를 다시 꽂으십시오",
        ],
    ),
    (
        "pcie.slow",
        [
            "{device} runs at {now}; the card and the port above it ({port}) can do {possible}: {is} of {could_be}. Some devices slow down while idle.",
            "{device} は {now} で動作していますが、カードと上位ポート（{port}）は {possible} まで可能です：{could_be} のうち {is}。アイドル時に速度を下げる機器もあります。",
            "{device}은(는) {now}로 동작하지만 카드와 위쪽 포트({port})는 {possible}까지 가능합니다: {could_be} 중 {is}. 유휴 상태에서 속도를 낮추는 장치도 있습니다.",
        ],
    ),
    (
        "pcie.slow-remedy",
        [
            "read it again while the device works; if it stays, look at the riser and at the firmware's speed limit for this slot",
            "機器が動作している間にもう一度読み取ります。変わらなければ、ライザーとこのスロットの速度制限（ファームウェア）を確認します",
            "장치가 동작하는 동안 다시 읽어 보십시오. 그대로라면 라이저와 이 슬롯의 속도 제한(펌웨어)을 확인하십시오",
        ],
    ),
    (
        "pcie.ask-hypervisor",
        [
            "the slots belong to the hypervisor: run it there",
            "スロットはハイパーバイザー側にあります。そちらで実行してください",
            "슬롯은 하이퍼바이저에 속합니다. 그쪽에서 실행하십시오",
        ],
    ),
    (
        "pcie.links-fine",
        [
            "PCIe links: all {links} run as fast and as wide as both of their ends can; the slowest is that of {device}, {now}, {is}.",
            "PCIe リンク：{links} 本すべてが両端の上限で動作しています。最も遅いのは {device} の {now}、{is} です。",
            "PCIe 링크: {links}개 모두 양쪽 끝의 상한으로 동작합니다. 가장 느린 것은 {device}의 {now}, {is}입니다.",
        ],
    ),
    (
        "pcie.slot-narrow",
        [
            "{device}: ports that are up: {ports}, {wanted} together. Their slot, {now} with packets of {payload} bytes, carries {carries}: one more cable adds nothing.",
            "{device}：リンクアップ中の {ports} ポートの合計は {wanted} ですが、共有するスロット（{now}、ペイロード {payload} バイト）が転送できるのは {carries} です。ケーブルを足しても速くなりません。",
            "{device}: 연결된 포트 {ports}개의 합은 {wanted}이지만, 함께 쓰는 슬롯({now}, 페이로드 {payload}바이트)은 {carries}까지만 전송할 수 있습니다. 케이블을 더해도 빨라지지 않습니다.",
        ],
    ),
    (
        "pcie.slot-remedy",
        [
            "move the card to a wider or newer slot, or put a second card into another slot and use both (multipath, round robin)",
            "より広い、または新しい世代のスロットに移すか、別のスロットに 2 枚目を挿して両方を使います（マルチパス、ラウンドロビン）",
            "더 넓거나 새로운 세대의 슬롯으로 옮기거나, 다른 슬롯에 두 번째 카드를 꽂아 둘 다 사용하십시오(멀티패스, 라운드 로빈)",
        ],
    ),
    (
        "pcie.slot-disk",
        [
            "{device} can do {own} ({wanted}), and the slot below {port} can do no more than {now}: {carries} with packets of {payload} bytes.",
            "{device} は {own}（{wanted}）まで可能ですが、{port} の下のスロットは {now} までです：ペイロード {payload} バイトで {carries}。",
            "{device}: 장치는 {own}({wanted})까지 가능하지만 {port} 아래의 슬롯은 {now}까지만 됩니다: 페이로드 {payload}바이트로 {carries}.",
        ],
    ),
    (
        "pcie.slot-disk-remedy",
        [
            "move it to a slot with more lanes or of a newer generation; where the board has none, this is what it gives",
            "レーン数の多い、または新しい世代のスロットに移します。ボードに空きがなければ、これが上限です",
            "레인이 더 많거나 새로운 세대의 슬롯으로 옮기십시오. 보드에 그런 슬롯이 없다면 이것이 한계입니다",
        ],
    ),
    (
        "pcie.slot-disks",
        [
            "{device}: disks at this controller: {ports}, which move about {wanted} together. Its slot, {now} with packets of {payload} bytes, carries {carries}.",
            "{device}：このコントローラーのディスク {ports} 台は合計で約 {wanted} を転送できますが、スロット（{now}、ペイロード {payload} バイト）が転送できるのは {carries} です。",
            "{device}: 이 컨트롤러의 디스크 {ports}개는 합쳐서 약 {wanted}까지 전송할 수 있지만, 슬롯({now}, 페이로드 {payload}바이트)은 {carries}까지만 전송할 수 있습니다.",
        ],
    ),
    (
        "pcie.slot-disks-remedy",
        [
            "move the controller to a wider or newer slot, or spread the disks over two controllers; nothing while they do not work at once",
            "コントローラーをより広い、または新しい世代のスロットに移すか、ディスクを 2 枚のコントローラーに分けます。同時に使わなければ問題ありません",
            "컨트롤러를 더 넓거나 새로운 세대의 슬롯으로 옮기거나 디스크를 컨트롤러 두 개로 나누십시오. 동시에 쓰지 않으면 문제없습니다",
        ],
    ),
    (
        "pcie.slot-untold",
        [
            "no file tells what the disks behind this link can move: read all of them at once (fio) and compare that with the slot",
            "このリンクの先のディスクの速度を示すファイルがありません。すべてを同時に読み出し（fio）、スロットの帯域と比べてください",
            "이 링크 뒤의 디스크가 얼마나 빠른지 알려 주는 파일이 없습니다. 모두 동시에 읽어(fio) 슬롯의 대역폭과 비교하십시오",
        ],
    ),
    (
        "pcie.uplink-one",
        [
            "{device} could move {wanted}, and a link above it, {now} below {port} with packets of {payload} bytes, carries {carries}.",
            "{device} は {wanted} を転送できますが、その上位のリンク（{port} の下、{now}、ペイロード {payload} バイト）が転送できるのは {carries} です。",
            "{device}: 장치는 {wanted}까지 전송할 수 있지만 그 위의 링크({port} 아래, {now}, 페이로드 {payload}바이트)는 {carries}까지만 전송할 수 있습니다.",
        ],
    ),
    (
        "pcie.uplink-narrow",
        [
            "{ports} cards could move {wanted} together, and share a link of {now} below {port} with packets of {payload} bytes, which carries {carries}: {device}.",
            "{ports} 枚のカードは合計 {wanted} を転送できますが、{port} の下の 1 本のリンク（{now}、ペイロード {payload} バイト、{carries}）を共有しています：{device}。",
            "카드 {ports}개는 합쳐서 {wanted}까지 전송할 수 있지만 {port} 아래의 링크 하나({now}, 페이로드 {payload}바이트, {carries})를 함께 씁니다: {device}.",
        ],
    ),
    (
        "pcie.uplink-remedy",
        [
            "nothing while they do not work at once; else spread them over several ports of the processor",
            "同時に使わなければ問題ありません。同時に使う場合は、プロセッサの複数のポートに分散させます",
            "동시에 쓰지 않으면 문제없습니다. 동시에 쓴다면 프로세서의 여러 포트로 나누십시오",
        ],
    ),
    (
        "pcie.slots-fine",
        [
            "PCIe slots: the tightest is that of {device}, which carries {carries} for {wanted} at most: {factor} times.",
            "PCIe スロット：最も余裕が少ないのは {device} で、最大 {wanted} に対して {carries} を転送できます（{factor} 倍）。",
            "PCIe 슬롯: 여유가 가장 적은 것은 {device}이며, 최대 {wanted}에 대해 {carries}까지 전송할 수 있습니다({factor}배).",
        ],
    ),
    (
        "pcie.slots-even",
        [
            "PCIe slots: the tightest is that of {device}, which carries {carries} for {wanted} at most: {factor} times, as good as even.",
            "PCIe スロット：最も余裕が少ないのは {device} で、最大 {wanted} に対して {carries} を転送できます（{factor} 倍、ほぼ同等）。",
            "PCIe 슬롯: 여유가 가장 적은 것은 {device}이며, 최대 {wanted}에 대해 {carries}까지 전송할 수 있습니다({factor}배, 거의 같음).",
        ],
    ),
    (
        "pcie.payload",
        [
            "{device}: packets on PCIe carry 128 bytes, and the whole way can do {could_be}: {gain} more throughput.",
            "{device}：PCIe のペイロードは 128 バイトですが、経路全体で {could_be} バイトが可能です：スループット {gain} 増。",
            "{device}: PCIe 페이로드가 128바이트이지만 경로 전체가 {could_be}바이트를 지원합니다: 처리량 {gain} 증가.",
        ],
    ),
    (
        "pcie.payload-remedy",
        [
            "start the kernel with this parameter; it sets the largest payload that each way can do",
            "カーネルをこのパラメーターで起動します。各経路で可能な最大ペイロードが設定されます",
            "커널을 이 매개변수로 시작하십시오. 각 경로가 지원하는 최대 페이로드로 설정됩니다",
        ],
    ),
    (
        "pcie.read-request",
        [
            "{device}: it reads memory in requests of {size} bytes at most; a line of 25 Gb/s and more waits for their answers.",
            "{device}：メモリ読み出し要求が最大 {size} バイトです。25 Gb/s 以上の回線では応答待ちが生じます。",
            "{device}: 메모리 읽기 요청이 최대 {size}바이트입니다. 25 Gb/s 이상의 회선에서는 응답을 기다리게 됩니다.",
        ],
    ),
    (
        "pcie.read-request-remedy",
        [
            "raise the largest read request (MRRS) to 4096 bytes, after writing down what stands there now (the same command without the value)",
            "現在の値（同じコマンドを値なしで実行）を控えてから、最大読み出し要求（MRRS）を 4096 バイトに上げます",
            "현재 값(같은 명령을 값 없이 실행)을 적어 둔 뒤 최대 읽기 요청(MRRS)을 4096바이트로 올리십시오",
        ],
    ),
    (
        "pcie.payload-fine",
        [
            "PCIe packets: {cards} cards use the largest that their way can do, or at least 256 bytes; the smallest is {least} bytes.",
            "PCIe パケット：{cards} 枚のカードは経路で可能な最大、または 256 バイト以上を使っています。最小は {least} バイトです。",
            "PCIe 패킷: 카드 {cards}개가 경로에서 가능한 최대 또는 256바이트 이상을 사용합니다. 최소는 {least}바이트입니다.",
        ],
    ),
    (
        "pcie.errors",
        [
            "{device}: the PCIe link repeated or lost {grown} packets in {seconds} s ({total} since boot); each costs time, and more of them can break the link.",
            "{device}：PCIe リンクで {seconds} 秒間に {grown} 個のパケットが再送または破損しました（起動以来 {total}）。そのたびに時間を失い、増えればリンクが切れることもあります。",
            "{device}: PCIe 링크에서 {seconds}초 동안 패킷 {grown}개가 재전송되거나 손상되었습니다(부팅 이후 {total}). 그때마다 시간을 잃고, 늘어나면 링크가 끊길 수 있습니다.",
        ],
    ),
    (
        "pcie.errors-remedy",
        [
            "reseat the card, then change the riser or the cable; a lower speed of the slot tells whether it is the signal",
            "カードを挿し直し、次にライザーやケーブルを交換します。スロットの速度を下げれば信号の問題かどうか分かります",
            "카드를 다시 꽂고, 그다음 라이저나 케이블을 바꾸십시오. 슬롯 속도를 낮추면 신호 문제인지 알 수 있습니다",
        ],
    ),
    (
        "pcie.errors-fine",
        [
            "PCIe errors: none during the look on {functions} functions; {total} corrected since boot.",
            "PCIe エラー：観測中は {functions} 個のファンクションで 0 件。起動以来の訂正済みは {total} 件です。",
            "PCIe 오류: 관찰 중 기능 {functions}개에서 0건. 부팅 이후 정정된 것은 {total}건입니다.",
        ],
    ),
    (
        "pcie.second-look",
        [
            "growth needs two looks: run it on the host itself",
            "増分の確認には 2 回の観測が必要です。ホスト上で実行してください",
            "증가를 보려면 두 번 관찰해야 합니다. 호스트에서 직접 실행하십시오",
        ],
    ),
    (
        "pcie.sleep",
        [
            "The PCIe links of {device} may sleep (ASPM L1): what comes after a pause waits some microseconds for them to wake.",
            "{device} の PCIe リンクはスリープ可能（ASPM L1）です。休止の後の要求は、復帰まで数マイクロ秒待たされます。",
            "{device}의 PCIe 링크가 절전(ASPM L1)에 들어갈 수 있습니다. 쉬었다가 온 요청은 깨어날 때까지 몇 마이크로초를 기다립니다.",
        ],
    ),
    (
        "pcie.sleep-remedy",
        ["keep these links awake", "これらのリンクをスリープさせません", "이 링크들을 절전에 들어가지 않게 합니다"],
    ),
    (
        "pcie.sleep-fine",
        [
            "PCIe sleep: none of {links} links of network ports and NVMe disks may sleep (policy: {policy}).",
            "PCIe スリープ：ネットワークポートと NVMe の {links} 本のリンクはスリープしません（ポリシー：{policy}）。",
            "PCIe 절전: 네트워크 포트와 NVMe의 링크 {links}개는 절전에 들어가지 않습니다(정책: {policy}).",
        ],
    ),
    (
        "pcie.iommu",
        [
            "The IOMMU is strict for {device}: each transfer pays for a mapping and a flush.",
            "{device} の IOMMU は strict モードです。転送のたびにマッピングとフラッシュのコストがかかります。",
            "{device}의 IOMMU가 strict 모드입니다. 전송할 때마다 매핑과 플러시 비용이 듭니다.",
        ],
    ),
    (
        "pcie.iommu-remedy",
        [
            "start the kernel with this parameter (flushes are gathered), or with iommu=pt (no translation for the host's own devices); both leave a device more time to write where it no longer should",
            "カーネルをこのパラメーターで起動するか（フラッシュをまとめる）、iommu=pt を使います（ホスト自身の機器は変換なし）。どちらも、解放後のメモリに機器が書き込める時間が長くなります",
            "커널을 이 매개변수로 시작하거나(플러시를 모음) iommu=pt를 쓰십시오(호스트 장치는 변환 없음). 둘 다 해제된 메모리에 장치가 쓸 수 있는 시간이 길어집니다",
        ],
    ),
    (
        "pcie.iommu-kernel",
        ["the kernel shows it from 5.11 on", "カーネル 5.11 以降で表示されます", "커널 5.11부터 표시됩니다"],
    ),
    (
        "pcie.iommu-fine",
        [
            "IOMMU: not strict for fast adapters and NVMe disks ({kinds}).",
            "IOMMU：高速アダプターと NVMe は strict ではありません（{kinds}）。",
            "IOMMU: 고속 어댑터와 NVMe는 strict가 아닙니다({kinds}).",
        ],
    ),
    (
        "pcie.node-unknown",
        [
            "Linux does not know which of {nodes} NUMA nodes with CPUs these are at: {device}. It places their interrupts and buffers blindly.",
            "次の機器が CPU のある {nodes} 個の NUMA ノードのどれにあるか Linux は知りません：{device}。割り込みとバッファは当てずっぽうに置かれます。",
            "다음 장치가 CPU가 있는 NUMA 노드 {nodes}개 중 어디에 있는지 Linux가 모릅니다: {device}. 인터럽트와 버퍼가 무작정 배치됩니다.",
        ],
    ),
    (
        "pcie.node-unknown-remedy",
        [
            "newer firmware may tell (_PXM); else the board's manual says which slot is at which processor, and a line with the PCI buses or the function and the node in {file} tells it to Forebay: the doctor and the daemon's placement go by it",
            "新しいファームウェアなら通知することがあります（_PXM）。なければ、どのスロットがどのプロセッサに属すかはボードのマニュアルにあります。{file} に PCI バスまたは機器とノード番号を 1 行書くと Forebay に伝わり、診断とデーモンの配置がそれに従います",
            "새 펌웨어가 알려 줄 수 있습니다(_PXM). 아니면 보드 설명서에서 슬롯이 어느 프로세서에 속하는지 확인하십시오. {file}에 PCI 버스나 장치와 노드 번호를 한 줄로 적으면 Forebay에 전달되어 진단과 데몬의 배치가 그에 따릅니다",
        ],
    ),
    (
        "pcie.locality",
        [
            "Lines of {file} that count for nothing: {lines}. Where the devices are that they mean is left to the firmware.",
            "{file} のうち効力のない行は {lines} 行です。それらが指す機器の位置はファームウェアの値のままです。",
            "{file}에서 효력이 없는 줄은 {lines}개입니다. 그 줄이 가리키는 장치의 위치는 펌웨어 값을 그대로 씁니다.",
        ],
    ),
    (
        "pcie.locality-remedy",
        [
            "write PCI buses or one function, then a NUMA node that this host has: `0000:40-46 1` or `0000:82:00.0 1`",
            "PCI バスまたは機器 1 台と、このホストにある NUMA ノードを書きます：`0000:40-46 1` または `0000:82:00.0 1`",
            "PCI 버스나 장치 하나, 그리고 이 호스트에 있는 NUMA 노드를 적으십시오: `0000:40-46 1` 또는 `0000:82:00.0 1`",
        ],
    ),
    (
        "pcie.node-of-guest",
        [
            "give the guest's PCI bus a node at the hypervisor (with QEMU: pxb-pcie with numa_node)",
            "ハイパーバイザー側でゲストの PCI バスにノードを割り当てます（QEMU では pxb-pcie の numa_node）",
            "하이퍼바이저에서 게스트의 PCI 버스에 노드를 지정하십시오(QEMU: pxb-pcie의 numa_node)",
        ],
    ),
    (
        "pcie.nodes-fine",
        [
            "NUMA nodes of devices: known for all {devices}, on a host where {nodes} nodes have CPUs.",
            "機器の NUMA ノード：CPU のあるノードが {nodes} 個のホストで {devices} 台すべて判明しています。",
            "장치의 NUMA 노드: CPU가 있는 노드 {nodes}개인 호스트에서 {devices}개 모두 알려져 있습니다.",
        ],
    ),
];
