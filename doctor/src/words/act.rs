//! Words of what is done about findings, of the baseline and of watching.

use super::Row;

/// Sentences of remedies, the baseline and watching, by their keys.
pub const ROWS: &[Row] = &[
    ("act.became.kept", ["kept", "適用して維持", "적용 후 유지"]),
    ("act.became.awaits-confirmation", ["applied, awaits confirmation", "適用済み、確認待ち", "적용됨, 확인 대기"]),
    ("act.became.reverted", ["taken back", "元に戻しました", "되돌림"]),
    ("act.became.refused", ["not begun", "実行していません", "실행하지 않음"]),
    ("act.became.failed", ["failed, taken back", "失敗、元に戻しました", "실패, 되돌림"]),
    ("act.became.not-reverted", ["COULD NOT BE TAKEN BACK", "元に戻せませんでした", "되돌리지 못함"]),
    ("act.became.gone", ["gone already", "既に失われています", "이미 사라짐"]),
    ("act.became.applied-again", ["applied again", "再適用しました", "다시 적용됨"]),
    ("act.became.not-applied-again", ["NOT applied again", "再適用していません", "다시 적용되지 않음"]),
    (
        "act.again.done",
        [
            "the reboot had ended what was applied on {time}",
            "{time} に適用した設定は再起動で失われていました",
            "{time}에 적용한 설정이 재부팅으로 사라져 있었습니다",
        ],
    ),
    (
        "act.again.gone",
        [
            "{path} is not there in this boot ({device}); nothing was written, and it stays in the journal for the next boot, or until --revert",
            "今回の起動では {path} がありません ({device})。何も書き込みませんでした。次の起動または --revert まで記録に残します",
            "이번 부팅에는 {path}이(가) 없습니다({device}). 아무것도 쓰지 않았으며 다음 부팅 또는 --revert까지 기록에 남습니다",
        ],
    ),
    (
        "act.again.other",
        [
            "{path} is not surely the same in this boot: it was set for {device}; nothing was written, and it stays in the journal until --revert",
            "今回の起動の {path} は同じものと確認できません。設定の対象は {device} でした。何も書き込まず、--revert まで記録に残します",
            "이번 부팅의 {path}은(는) 같은 것인지 확인되지 않습니다. 설정 대상은 {device}이었(였)습니다. 아무것도 쓰지 않았으며 --revert까지 기록에 남습니다",
        ],
    ),
    (
        "act.again.no-more",
        [
            "{path}: a reboot had ended it, and it is not applied again any more; nothing was written",
            "{path}: 再起動で失われており、今後は再適用しません。何も書き込みませんでした",
            "{path}: 재부팅으로 사라졌으며 더 이상 다시 적용하지 않습니다. 아무것도 쓰지 않았습니다",
        ],
    ),
    (
        "act.again.nothing",
        [
            "Nothing was applied with --persist that a reboot has ended.",
            "--persist で適用し再起動で失われた設定はありません。",
            "--persist로 적용하고 재부팅으로 사라진 설정이 없습니다.",
        ],
    ),
    (
        "act.again.hint",
        [
            "It is applied again after a reboot where the service for that is enabled: systemctl enable forebay-doctor.service",
            "再起動後に再適用するにはサービスを有効にしてください: systemctl enable forebay-doctor.service",
            "재부팅 후 다시 적용하려면 서비스를 활성화하십시오: systemctl enable forebay-doctor.service",
        ],
    ),
    (
        "act.irqbalance",
        [
            "irqbalance runs and asks nobody before it moves interrupts: have it leave these by IRQBALANCE_ARGS=\"--policyscript=/usr/lib/forebay/irqbalance-policy\" in /etc/default/irqbalance, and start it anew",
            "irqbalance が動作しており、確認せずに割り込みを移動します。/etc/default/irqbalance の IRQBALANCE_ARGS=\"--policyscript=/usr/lib/forebay/irqbalance-policy\" で除外させ、再起動してください",
            "irqbalance가 실행 중이며 확인 없이 인터럽트를 옮깁니다. /etc/default/irqbalance의 IRQBALANCE_ARGS=\"--policyscript=/usr/lib/forebay/irqbalance-policy\"로 제외하게 하고 다시 시작하십시오",
        ],
    ),
    (
        "act.refused.persist-network",
        [
            "what can cut you off is not applied at boot, where nobody could confirm it; put it into the network's own configuration",
            "接続を失うおそれのある設定は、確認できない起動時には適用しません。ネットワーク自体の設定に書いてください",
            "연결이 끊길 수 있는 설정은 확인할 사람이 없는 부팅 때 적용하지 않습니다. 네트워크 자체 설정에 넣으십시오",
        ],
    ),
    (
        "act.refused.persist-unknown",
        [
            "{path}: nothing tells after a reboot that it is the same device; apply it without --persist",
            "{path}: 再起動後に同じデバイスであると確認できません。--persist なしで適用してください",
            "{path}: 재부팅 후 같은 장치인지 알 수 없습니다. --persist 없이 적용하십시오",
        ],
    ),
    (
        "act.gone",
        [
            "the check was run again and finds it no more",
            "再検査でこの問題は検出されなくなりました",
            "다시 검사한 결과 더 이상 발견되지 않습니다",
        ],
    ),
    (
        "act.better",
        [
            "the check was run again: still there, and better",
            "再検査でまだ残っていますが、改善しました",
            "다시 검사한 결과 아직 남아 있지만 나아졌습니다",
        ],
    ),
    (
        "act.not-better",
        [
            "the check was run again and is not better by a tenth of what is lacking, so the old values are back",
            "再検査で不足分の 1 割も改善しなかったため、元の値に戻しました",
            "다시 검사했으나 부족분의 10분의 1도 나아지지 않아 이전 값으로 되돌렸습니다",
        ],
    ),
    (
        "act.unseen",
        [
            "the check could not be run again, so the old values are back: {what}",
            "再検査できなかったため、元の値に戻しました: {what}",
            "다시 검사할 수 없어 이전 값으로 되돌렸습니다: {what}",
        ],
    ),
    (
        "act.refused.by-hand",
        [
            "Forebay cannot do this one; a person can, see what helps",
            "Forebay では実行できません。「対処」を人が行ってください",
            "Forebay가 할 수 없습니다. '조치'를 사람이 직접 수행하십시오",
        ],
    ),
    (
        "act.refused.place",
        [
            "{path} is none of the settings that the doctor writes",
            "{path} は診断が書き込む設定ではありません",
            "{path}은(는) 진단이 쓰는 설정이 아닙니다",
        ],
    ),
    (
        "act.refused.value",
        [
            "{path}: {value} is no value that the doctor writes there, now or to take it back",
            "{path}: {value} は適用時にも復元時にも診断が書き込まない値です",
            "{path}: {value}은(는) 적용이나 복원 때 진단이 쓰지 않는 값입니다",
        ],
    ),
    (
        "act.earlier",
        [
            "{path} of an earlier version is not read: a user who is not root may have written it. What it had applied ends with a reboot; apply anew what is to persist, then remove that folder",
            "以前のバージョンの {path} は読み込みません。root 以外のユーザーが書き込んだ可能性があります。適用済みの設定は再起動で失われます。永続させる設定は改めて適用し、そのフォルダーを削除してください",
            "이전 버전의 {path}은(는) 읽지 않습니다. root가 아닌 사용자가 썼을 수 있습니다. 적용된 설정은 재부팅하면 사라집니다. 유지할 설정은 다시 적용하고 그 폴더를 삭제하십시오",
        ],
    ),
    (
        "act.refused.managed",
        [
            "{path}: the kernel places this interrupt by itself and refuses changes",
            "{path}: この割り込みはカーネル自身が配置するため変更できません",
            "{path}: 이 인터럽트는 커널이 직접 배치하므로 변경할 수 없습니다",
        ],
    ),
    (
        "act.refused.open",
        [
            "{path} was changed already for {finding}; take that back first: forebay doctor --revert {finding}",
            "{path} は {finding} のために変更済みです。先に戻してください: forebay doctor --revert {finding}",
            "{path}은(는) {finding} 때문에 이미 변경되었습니다. 먼저 되돌리십시오: forebay doctor --revert {finding}",
        ],
    ),
    (
        "act.refused.unread",
        [
            "what it holds now could not be read, so it could not be taken back: {why}",
            "現在の値を読めないため、元に戻せません: {why}",
            "현재 값을 읽을 수 없어 되돌릴 수 없습니다: {why}",
        ],
    ),
    (
        "act.failed.write",
        [
            "the kernel did not take {value}: {why}",
            "カーネルが {value} を受け付けませんでした: {why}",
            "커널이 {value}을(를) 받아들이지 않았습니다: {why}",
        ],
    ),
    (
        "act.failed.read-back",
        [
            "{path} reads {reads} after {value} was written",
            "{path} に {value} を書き込みましたが、読み出すと {reads} です",
            "{path}에 {value}을(를) 썼지만 {reads}(으)로 읽힙니다",
        ],
    ),
    (
        "act.gone-with-boot",
        [
            "{path}: the host was booted since, and such a setting ends with it; nothing was written",
            "{path}: その後再起動されており、この設定は失われています。何も書き込みませんでした",
            "{path}: 그 후 재부팅되어 이 설정은 사라졌습니다. 아무것도 쓰지 않았습니다",
        ],
    ),
    (
        "act.gone-with-device",
        [
            "{path} is there no more; nothing was written",
            "{path} はもう存在しません。何も書き込みませんでした",
            "{path}은(는) 더 이상 존재하지 않습니다. 아무것도 쓰지 않았습니다",
        ],
    ),
    (
        "act.not-restored",
        [
            "it stays in the journal, so that it can be tried again: {why}",
            "再試行できるよう記録に残します: {why}",
            "다시 시도할 수 있도록 기록에 남깁니다: {why}",
        ],
    ),
    ("act.restored", ["{path} is {old} again", "{path} は {old} に戻りました", "{path}이(가) 다시 {old}입니다"]),
    (
        "act.restored-over",
        [
            "{path} is {old} again; somebody else had made it {was} meanwhile",
            "{path} は {old} に戻りました。途中で他者が {was} に変更していました",
            "{path}이(가) 다시 {old}입니다. 그사이 다른 누군가가 {was}(으)로 바꾸어 놓았습니다",
        ],
    ),
    (
        "act.was-back",
        ["{path} was {old} already", "{path} は既に {old} でした", "{path}은(는) 이미 {old}이었(였)습니다"],
    ),
    (
        "act.nothing-open",
        [
            "Nothing that the doctor has changed is to be taken back.",
            "元に戻すべき変更はありません。",
            "되돌릴 변경 사항이 없습니다.",
        ],
    ),
    (
        "act.nothing-awaits",
        ["Nothing awaits confirmation.", "確認待ちの変更はありません。", "확인을 기다리는 변경 사항이 없습니다."],
    ),
    (
        "act.confirmed",
        [
            "{finding}: confirmed, it stays",
            "{finding}: 確認されました。この設定を維持します",
            "{finding}: 확인되어 유지됩니다",
        ],
    ),
    (
        "act.confirm",
        [
            "goes back in {seconds} s unless this is typed: forebay doctor --confirm",
            "次を実行しない限り {seconds} 秒後に元に戻ります: forebay doctor --confirm",
            "다음을 실행하지 않으면 {seconds}초 후 되돌아갑니다: forebay doctor --confirm",
        ],
    ),
    (
        "act.not-confirmed",
        [
            "{finding}: nobody has confirmed it; taken back",
            "{finding}: 確認されなかったため、元に戻しました",
            "{finding}: 확인되지 않아 되돌렸습니다",
        ],
    ),
    (
        "baseline.worse",
        ["worse   {what}: {was} -> {now}", "悪化    {what}: {was} -> {now}", "악화    {what}: {was} -> {now}"],
    ),
    (
        "baseline.other",
        ["changed {what}: {was} -> {now}", "変化    {what}: {was} -> {now}", "변경    {what}: {was} -> {now}"],
    ),
    (
        "baseline.better",
        ["better  {what}: {was} -> {now}", "改善    {what}: {was} -> {now}", "개선    {what}: {was} -> {now}"],
    ),
    ("baseline.worse-device", ["worse   {what}: {differs}", "悪化    {what}: {differs}", "악화    {what}: {differs}"]),
    ("baseline.other-device", ["changed {what}: {differs}", "変化    {what}: {differs}", "변경    {what}: {differs}"]),
    ("baseline.better-device", ["better  {what}: {differs}", "改善    {what}: {differs}", "개선    {what}: {differs}"]),
    ("baseline.interrupts", ["{count} interrupts", "割り込み {count} 個", "인터럽트 {count}개"]),
    ("baseline.worse-word", ["worse", "悪化", "악화"]),
    ("baseline.other-word", ["changed", "変化", "변경"]),
    ("baseline.better-word", ["better", "改善", "개선"]),
    (
        "baseline.same",
        [
            "{count} things are as they were at {time} (kernel {was}; now {now})",
            "{count} 項目は {time} 時点から変わっていません (カーネル {was}、現在 {now})",
            "{count}개 항목이 {time} 당시와 같습니다 (커널 {was}, 현재 {now})",
        ],
    ),
    (
        "baseline.differs",
        [
            "{count} things differ from {time} (kernel {was}; now {now}), {worse} of them for the worse",
            "{time} (カーネル {was}、現在 {now}) から {count} 項目が変わり、うち {worse} 項目が悪化しました",
            "{time}(커널 {was}, 현재 {now})와 {count}개 항목이 다르며 그중 {worse}개가 나빠졌습니다",
        ],
    ),
    (
        "baseline.saved",
        [
            "{count} things are kept in {path}",
            "{count} 項目を {path} に保存しました",
            "{count}개 항목을 {path}에 저장했습니다",
        ],
    ),
    (
        "act.damaged",
        [
            "{count} lines of the journal are damaged: what they tell of is not taken back",
            "記録の {count} 行が破損しています。その内容は元に戻せません",
            "기록의 {count}줄이 손상되어 그 내용은 되돌릴 수 없습니다",
        ],
    ),
    ("watch.memory-read", ["memory read", "メモリ読み出し", "메모리 읽기"]),
    ("watch.memory-written", ["memory written", "メモリ書き込み", "메모리 쓰기"]),
    ("watch.memory", ["memory", "メモリ", "메모리"]),
    ("watch.memory-local", ["memory of the own node", "自ノードのメモリ", "자기 노드 메모리"]),
    ("watch.memory-remote", ["memory of other nodes", "他ノードのメモリ", "다른 노드 메모리"]),
    ("watch.device-to-memory", ["devices to memory", "デバイスからメモリ", "장치에서 메모리로"]),
    ("watch.memory-to-device", ["memory to devices", "メモリからデバイス", "메모리에서 장치로"]),
    (
        "watch.devices-near",
        ["memory of the own socket, by devices", "デバイスが使う自ソケットのメモリ", "장치가 쓰는 자기 소켓 메모리"],
    ),
    (
        "watch.devices-far",
        ["memory of other sockets, by devices", "デバイスが使う他ソケットのメモリ", "장치가 쓰는 다른 소켓 메모리"],
    ),
    ("watch.socket-link", ["sent to other sockets", "他ソケットへの送信", "다른 소켓으로 전송"]),
    ("watch.received", ["received", "受信", "수신"]),
    ("watch.sent", ["sent", "送信", "송신"]),
    ("watch.disk-read", ["disk read", "ディスク読み出し", "디스크 읽기"]),
    ("watch.disk-written", ["disk written", "ディスク書き込み", "디스크 쓰기"]),
    (
        "watch.pages-for-others",
        ["pages for CPUs of other nodes", "他ノードの CPU に割り当てたページ", "다른 노드 CPU에 할당된 페이지"],
    ),
    (
        "watch.rung",
        [
            "rung {rung} of 4 (1 counters beside the cores, 2 resctrl, 4 what software counts)",
            "計測手段 {rung} / 4 (1 コア外カウンタ、2 resctrl、4 ソフトウェアの計数)",
            "측정 단계 {rung}/4 (1 코어 외부 카운터, 2 resctrl, 4 소프트웨어 집계)",
        ],
    ),
    (
        "watch.recorded",
        [
            "a recorded host has no counters to open",
            "記録されたホストではカウンタを開けません",
            "기록된 호스트에는 열 카운터가 없습니다",
        ],
    ),
    (
        "watch.virtual",
        [
            "a virtual machine{hypervisor} shows no counters of memory or PCIe; look on its host",
            "仮想マシン{hypervisor}からはメモリや PCIe のカウンタが見えません。ホスト側で確認してください",
            "가상 머신{hypervisor}에서는 메모리와 PCIe 카운터가 보이지 않습니다. 호스트에서 확인하십시오",
        ],
    ),
    (
        "watch.no-counters",
        [
            "the kernel shows no counters of memory, PCIe or socket links that are known here below /sys/bus/event_source/devices; the modules intel_uncore or amd_uncore bring them",
            "/sys/bus/event_source/devices に、メモリ・PCIe・ソケット間リンクの既知のカウンタがありません。intel_uncore または amd_uncore モジュールが提供します",
            "/sys/bus/event_source/devices에 알려진 메모리, PCIe, 소켓 링크 카운터가 없습니다. intel_uncore 또는 amd_uncore 모듈이 제공합니다",
        ],
    ),
    (
        "watch.no-right",
        [
            "counters may not be opened ({file} is {value}); run it as root, or with CAP_PERFMON",
            "カウンタを開く権限がありません ({file} は {value})。root または CAP_PERFMON で実行してください",
            "카운터를 열 권한이 없습니다({file} 값 {value}). root 또는 CAP_PERFMON으로 실행하십시오",
        ],
    ),
    (
        "watch.not-opened",
        ["counters could not be opened: {why}", "カウンタを開けませんでした: {why}", "카운터를 열 수 없습니다: {why}"],
    ),
    (
        "watch.resctrl-mount",
        [
            "this processor can tell local and remote memory; have it shown: mount -t resctrl resctrl /sys/fs/resctrl",
            "このプロセッサはローカル/リモートメモリの帯域を計測できます: mount -t resctrl resctrl /sys/fs/resctrl",
            "이 프로세서는 로컬/원격 메모리 대역폭을 측정할 수 있습니다: mount -t resctrl resctrl /sys/fs/resctrl",
        ],
    ),
    (
        "watch.no-resctrl",
        [
            "this processor or kernel has no monitoring of memory bandwidth (resctrl)",
            "このプロセッサまたはカーネルにはメモリ帯域監視 (resctrl) がありません",
            "이 프로세서 또는 커널에는 메모리 대역폭 모니터링(resctrl)이 없습니다",
        ],
    ),
    ("watch.as-recorded", ["in the {seconds} s of the record", "記録された {seconds} 秒間", "기록된 {seconds}초 동안"]),
    (
        "watch.no-sample",
        [
            "the record has one look only; of two one sees what moves",
            "記録が 1 回分しかないため、転送量はわかりません",
            "기록이 한 번뿐이라 전송량을 알 수 없습니다",
        ],
    ),
];
