# Sourced by the scripts of this folder: a kernel and a busybox from Debian's archive, unpacked into .cache and never
# installed, and what is needed to make a guest's initrd of them.
#
# No KVM and no module of the host is needed: the guests run under TCG.

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${FOREBAY_CACHE:-$(cd "$here/../.." && pwd)/.cache}/guest
PATH=$PATH:/usr/sbin:/sbin

require_tools() {
    local tool
    for tool in "$@"; do
        command -v "$tool" >/dev/null || { echo "$(basename "$0"): $tool is missing; run scripts/setup.sh" >&2; exit 1; }
    done
}

# Sets `kernel` and `modules`. The lock keeps parallel tests apart.
fetch_kernel() {
    require_tools qemu-system-x86_64 dpkg-deb ldd strip flock
    mkdir -p "$cache"
    exec 9>"$cache/lock"
    flock 9
    if ! [ -e "$cache/ready" ]; then
        rm -rf "$cache/x"
        (
            cd "$cache"
            # The metapackage names the current kernel.
            kernel=$(apt-cache depends linux-image-cloud-amd64 | awk '/Depends:.*linux-image/ { print $2; exit }')
            for package in "$kernel" busybox-static; do
                ls "${package}"_*.deb >/dev/null 2>&1 || apt-get download "$package"
            done
            for package in *.deb; do dpkg-deb -x "$package" x; done
        ) >&2
        touch "$cache/ready"
    fi
    exec 9>&-
    kernel=$(echo "$cache"/x/boot/vmlinuz-*)
    modules=$(echo "$cache"/x/lib/modules/*/kernel)
}

# Debian's kernel for machines of all kinds, of the same version, in the place of the one for clouds, which lacks drivers of hardware.
use_machine_kernel() {
    local package
    package=linux-image-$(basename "$kernel" | sed 's/^vmlinuz-//; s/-cloud-/-/')
    exec 9>"$cache/lock"
    flock 9
    if ! [ -e "$cache/ready-$package" ]; then
        (
            cd "$cache"
            ls "${package}"_*.deb >/dev/null 2>&1 || apt-get download "$package"
            dpkg-deb -x "${package}"_*.deb m
        ) >&2
        touch "$cache/ready-$package"
    fi
    exec 9>&-
    kernel=$(echo "$cache"/m/boot/vmlinuz-*)
    modules=$(echo "$cache"/m/lib/modules/*/kernel)
}

# fetch_unpacked PACKAGE...: more of Debian's archive beside the kernel, unpacked and never installed.
fetch_unpacked() {
    local package
    exec 9>"$cache/lock"
    flock 9
    for package in "$@"; do
        [ -e "$cache/ready-$package" ] && continue
        (
            cd "$cache"
            ls "${package}"_*.deb >/dev/null 2>&1 || apt-get download "$package"
            dpkg-deb -x "${package}"_*.deb x
        ) >&2
        touch "$cache/ready-$package"
    done
    exec 9>&-
}

# new_root FOLDER APPLET...: an empty root with these applets of busybox. Sets `root`.
new_root() {
    root=$1
    shift
    rm -rf "$root"
    mkdir -p "$root"/{bin,lib,lib64,modules,proc,sys,dev,usr}
    ln -s ../lib "$root/usr/lib"
    cp "$cache/x/bin/busybox" "$root/bin/busybox"
    local applet
    for applet in "$@"; do ln -s busybox "$root/bin/$applet"; done
}

# One folder per architecture in Debian; the loader of the guest finds all in /lib.
with_libraries() {
    ldd "$1" | awk '/=> \// { print $3 } /^\t\/lib64/ { print $1 }' | while read -r library; do
        case $library in
        /lib64/*) cp -Ln "$library" "$root/lib64/" ;;
        *) cp -Ln "$library" "$root/lib/" ;;
        esac
    done
}

install_binary() { # from, name
    cp -L "$1" "$root/bin/$2"
    with_libraries "$1"
}

# with_modules NAME...: in the order in which they are to be loaded. What the kernel has built in has no file.
with_modules() {
    local name file
    for name in "$@"; do
        file=$(find "$modules" -name "$name.ko" | head -1)
        [ -n "$file" ] || continue
        cp "$file" "$root/modules/"
        echo "$name.ko" >>"$root/modules/order"
    done
}

# pack_root INIT INITRD: the root with its first process becomes an initrd.
pack_root() {
    cp "$1" "$root/init"
    chmod +x "$root/init"
    (cd "$root" && find . | "$cache/x/bin/busybox" cpio -o -H newc 2>/dev/null | gzip -1) >"$2"
    rm -rf "$root"
}

# run_guest SECONDS QEMU_ARGUMENT...: has the machine of OUT/initrd run until it switches itself off, and fails where it does not within
# so long, or has not said `guest: DONE`. Its words are in OUT/console.log.
#
# Where several CPUs are emulated at once, one of them is rarely caught in the guest's kernel for good: its watchdog says "soft lockup",
# which no program of user space can bring about; and rarely the emulator itself dies by a signal. Neither says anything of what is tried.
# So such a machine is switched off and begins anew, twice at most, with what `before_boot` makes for it; and one that is caught when
# all is done is switched off.
# (no_timer_check: on a host that is busy, the guest would wait in vain for its timer, and panic.)
run_guest() {
    local seconds=$1 name boot guest status why since done_at caught='soft lockup - CPU#[0-9]+ stuck for ([6-9][0-9]|[0-9]{3,})s'
    shift
    name=$(basename "$0")
    for boot in 1 2 3; do
        if declare -F before_boot >/dev/null; then before_boot; fi
        rm -f "$out/console.log"
        qemu-system-x86_64 -nodefaults -no-reboot -display none -cpu max -serial file:"$out/console.log" \
            -kernel "$kernel" -initrd "$out/initrd" "$@" &
        guest=$! since=$SECONDS done_at='' why=''
        # shellcheck disable=SC2064 # this machine
        trap "kill -KILL $guest 2>/dev/null || true" EXIT
        while [ -z "$why" ] && kill -0 "$guest" 2>/dev/null; do
            sleep 0.5
            if [ -z "$done_at" ] && grep -qs 'guest: DONE' "$out/console.log"; then done_at=$SECONDS; fi
            if [ -n "$done_at" ] && [ $((SECONDS - done_at)) -gt 30 ]; then
                why='is done and does not switch itself off'
            elif [ -z "$done_at" ] && grep -qsE "$caught" "$out/console.log"; then
                why='is caught in its kernel'
            elif [ $((SECONDS - since)) -gt "$seconds" ]; then
                why="has not ended after $seconds s"
            fi
        done
        if [ -n "$why" ]; then
            echo "$name: the machine $why; it is switched off" >&2
            kill -KILL "$guest" 2>/dev/null || true
        fi
        status=0
        wait "$guest" || status=$?
        trap - EXIT
        if [ -z "$why" ] && [ "$status" -gt 128 ]; then
            why="was ended by signal $((status - 128)) of its emulator"
            echo "$name: the machine $why" >&2
        elif [ "$why" != 'is caught in its kernel' ]; then
            break
        fi
    done
    rm -f "$out/initrd"
    if grep -qs 'guest: DONE' "$out/console.log"; then return; fi
    echo "$name: the guest failed at its boot $boot; its console:" >&2
    tail -n 50 "$out/console.log" >&2
    return 1
}
