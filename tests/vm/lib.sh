# shellcheck shell=bash
# SPDX-License-Identifier: BSD-3-Clause
#
# What the scripts of this folder share: the cache (kernel and base initrd), and small things.
# The cache needs no root: `apt-get download` and `dpkg-deb -x` work for everybody. It is keyed by kernel version and
# by the files that went in, and built under a lock, so that two runs may start at once.

VM_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
VM_ROOT=$(cd "$VM_DIR/../.." && pwd)
VM_CACHE=${CAIRN_VM_CACHE:-$VM_ROOT/build/vm-cache}
VM_SKIP=77
LIBDIR=usr/lib/x86_64-linux-gnu

# Modules by purpose; each set is loaded in the order of its dependencies. rdma_rxe uses crc32_generic by name, which
# its dependencies do not tell.
declare -A VM_MODULES=(
    [base]="virtio_pci virtio_console"
    [net]="virtio_net"
    [dummy]="dummy"
    [rxe]="crc32_generic rdma_ucm rdma_rxe"
    [siw]="crc32c_generic libcrc32c rdma_ucm iw_cm"
    [nvdimm]="nfit nd_pmem dax_pmem device_dax"
)
# Programs of the host in the guest, besides busybox.
VM_TOOLS=(ip rdma ibv_devinfo ndctl)

vm_say() { echo "${0##*/}: $*" >&2; }

vm_die()
{
    vm_say "$*"
    exit 2
}

# This machine cannot run VMs: not a failure, but nobody shall overlook it.
vm_skip()
{
    vm_say "SKIPPED: $*"
    exit $VM_SKIP
}

vm_need_tools()
{
    local tool
    PATH=$PATH:/usr/sbin:/sbin
    for tool in qemu-system-x86_64 busybox cpio xz depmod modprobe apt-get dpkg-deb flock setpriv "${VM_TOOLS[@]}"; do
        command -v "$tool" > /dev/null ||
            vm_skip "there is no $tool here; \`./dev packages --vm\` installs what VMs need"
    done
}

# apt-get and apt-cache with the package lists of the machine or, where these are missing or out of date, with lists
# of our own.
vm_apt()
{
    local tool=$1 lists=()
    shift
    if [ -d "$VM_CACHE/apt/lists" ]; then
        lists=(-o Dir::State::Lists="$VM_CACHE/apt/lists" -o Dir::Cache="$VM_CACHE/apt/cache")
    fi
    "$tool" "${lists[@]}" "$@"
}

vm_apt_update()
{
    vm_say "reading the package lists (the machine's are missing or too old)"
    rm -rf "$VM_CACHE/apt"
    mkdir -p "$VM_CACHE/apt/lists/partial" "$VM_CACHE/apt/cache/archives/partial"
    vm_apt apt-get update -q > "$VM_CACHE/apt/log" 2>&1
}

# The package of Debian's current kernel: linux-image-6.1.0-N-amd64. The cloud kernel has no RDMA. Asked anew when the
# package lists are newer than the last answer.
vm_find_kernel()
{
    if [ ! -s "$VM_CACHE/version" ] || [ /var/lib/apt/lists -nt "$VM_CACHE/version" ]; then
        vm_ask_kernel > "$VM_CACHE/version"
    fi
    cat "$VM_CACHE/version"
}

vm_ask_kernel()
{
    vm_apt apt-cache depends linux-image-amd64 2> /dev/null |
        sed -n 's/^ *Depends: linux-image-\([0-9][^ ]*\)$/\1/p' | head -n 1
}

# Newest kernel in the cache, or nothing.
vm_cached_kernel()
{
    find "$VM_CACHE" -maxdepth 2 -name vmlinux -printf '%h\n' 2> /dev/null | sed 's|.*/||' | sort -V | tail -n 1
}

vm_download()
{
    (cd "$1" && vm_apt apt-get download -q "$2") > "$VM_CACHE/download.log" 2>&1
}

vm_is_elf() { [ "$(head -c 4 "$1" | tr -d '\0')" = $'\177ELF' ]; }

# The uncompressed kernel out of a bzImage: boots seconds faster without KVM. The offsets are those of the x86 boot
# protocol; the last four bytes of the payload are its size. Where it is not XZ, the bzImage itself has to do.
vm_extract_kernel()
{
    local image=$1 out=$2 setup offset length
    setup=$(od -An -tu1 -j $((0x1f1)) -N1 "$image")
    offset=$(od -An -tu4 -j $((0x248)) -N4 "$image")
    length=$(od -An -tu4 -j $((0x24c)) -N4 "$image")
    { tail -c +$(((setup + 1) * 512 + offset + 1)) "$image" || true; } | head -c $((length - 4)) |
        xz -dc > "$out" 2> /dev/null || true
    vm_is_elf "$out" || cp "$image" "$out"
}

# Libraries that a program needs, as paths of the host.
vm_libraries()
{
    ldd "$@" 2> /dev/null | grep -oE '(^|[[:space:]])/[^ :]+ \(' | grep -oE '/[^ ]+' | LC_ALL=C sort -u || true
}

# Guest path of a library: all in one folder that the loader searches by itself.
vm_library_place()
{
    case $1 in
    */ld-linux*) echo "usr/lib64/${1##*/}" ;;
    *) echo "$LIBDIR/${1##*/}" ;;
    esac
}

vm_make_modules()
{
    local version=$1 root=$2 tree=$3 set module file
    depmod -b "$tree" "$version"
    for set in "${!VM_MODULES[@]}"; do
        for module in ${VM_MODULES[$set]}; do
            modprobe -C /dev/null -d "$tree" -S "$version" --show-depends "$module" || return 1
        done | awk '/^insmod/ && !seen[$2]++ { print $2 }' > "$root/mod/$set.paths" || return 1
        while read -r file; do
            cp "$file" "$root/mod/"
            basename "$file" .ko
        done < "$root/mod/$set.paths" > "$root/mod/$set"
        rm "$root/mod/$set.paths"
    done
}

vm_make_tree()
{
    local root=$1 applet file
    mkdir -p "$root"/{dev,proc,sys,tmp,run,root,mod,etc/libibverbs.d,usr/{bin,lib64},cairn} "$root/$LIBDIR/libibverbs"
    for file in bin sbin lib lib64; do ln -s "usr/$file" "$root/$file"; done
    ln -s bin "$root/usr/sbin"
    cp -L "$(command -v busybox)" "$root/usr/bin/busybox"
    for applet in $(busybox --list); do
        [ -e "$root/usr/bin/$applet" ] || ln -s busybox "$root/usr/bin/$applet"
    done
    echo 'root:x:0:0::/root:/bin/sh' > "$root/etc/passwd"
    echo 'root:x:0:' > "$root/etc/group"
    printf '127.0.0.1 localhost\n' > "$root/etc/hosts"
}

# VM_BASE.cpio: busybox, modules, tools, verbs providers. VM_BASE.sources lists the files of the host that went in:
# when one changes, the base is made anew. Trees whose scripts differ may share a cache: each has its own base.
vm_make_base()
{
    local version=$1 dir=$2 tree=$3 root tool file providers
    root=$(mktemp -d "$dir/base.XXXXXX")
    vm_make_tree "$root"
    vm_make_modules "$version" "$root" "$tree" || return 1
    providers=(/"$LIBDIR"/libibverbs/lib{rxe,siw}-rdmav*.so)
    {
        for tool in busybox "${VM_TOOLS[@]}"; do realpath "$(command -v "$tool")"; done
        printf '%s\n' "${providers[@]}" /etc/libibverbs.d/{rxe,siw}.driver
        vm_libraries "${providers[@]}"
        for tool in "${VM_TOOLS[@]}"; do vm_libraries "$(command -v "$tool")"; done
        ldconfig -p | sed -n 's/.*libgcc_s.so.1 .*x86-64.*=> //p' | head -n 1 # for pthread_exit()
    } | LC_ALL=C sort -u > "$root.files"
    for tool in "${VM_TOOLS[@]}"; do
        rm -f "$root/usr/bin/$tool"
        cp -L "$(command -v "$tool")" "$root/usr/bin/"
    done
    while read -r file; do
        case $file in
        */libibverbs/*) cp -L "$file" "$root/$LIBDIR/libibverbs/" ;;
        *.driver) cp -L "$file" "$root/etc/libibverbs.d/" ;;
        *.so*) cp -L "$file" "$root/$(vm_library_place "$file")" ;;
        esac
    done < "$root.files"
    (cd "$root" && find . | cpio -o -H newc --quiet) > "$root.cpio"
    vm_stamp "$root.files" > "$root.sources"
    mv "$root.cpio" "$VM_BASE.cpio"
    mv "$root.sources" "$VM_BASE.sources"
    rm -rf "$root" "$root.files"
}

# The state of the files of the host that are listed in a file.
vm_stamp() { xargs stat -L -c '%n %s %Y' < "$1"; }

vm_base_current()
{
    [ -s "$VM_BASE.cpio" ] && [ -s "$VM_BASE.sources" ] &&
        vm_stamp <(cut -d ' ' -f 1 "$VM_BASE.sources") 2> /dev/null | cmp -s - "$VM_BASE.sources"
}

vm_unpack_and_make()
{
    local version=$1 dir=$2 tree status=0
    vm_say "making the base of the VM (it is missing, or something in it has changed)"
    rm -rf "$dir"/tree.* "$dir"/base.?????? "$dir"/base.??????.* # of runs that were killed
    find "$dir" -maxdepth 1 -name 'base-*' -mtime +30 -delete
    tree=$(mktemp -d "$dir/tree.XXXXXX")
    dpkg-deb -x "$dir"/linux-image-*.deb "$tree" || status=1
    if [ $status -eq 0 ] && [ ! -s "$dir/vmlinux" ]; then
        vm_extract_kernel "$tree/boot/vmlinuz-$version" "$dir/vmlinux.new"
        mv "$dir/vmlinux.new" "$dir/vmlinux" || status=1
    fi
    [ $status -ne 0 ] || vm_make_base "$version" "$dir" "$tree" || status=1
    rm -rf "$tree"
    return $status
}

# Sets VM_VERSION, VM_KERNEL (its folder in the cache) and VM_BASE, with a kernel and a base that are up to date.
vm_prepare_locked()
{
    VM_VERSION=$(vm_find_kernel)
    if [ -z "$VM_VERSION" ] && [ -z "$(vm_cached_kernel)" ]; then
        vm_apt_update || true
        VM_VERSION=$(vm_find_kernel)
    fi
    VM_VERSION=${VM_VERSION:-$(vm_cached_kernel)}
    [ -n "$VM_VERSION" ] || vm_skip "no kernel package linux-image-amd64 can be found: no network, or not Debian"
    VM_KERNEL=$VM_CACHE/$VM_VERSION
    mkdir -p "$VM_KERNEL"
    if ! compgen -G "$VM_KERNEL/linux-image-*.deb" > /dev/null; then
        local fetch
        fetch=$(mktemp -d "$VM_CACHE/fetch.XXXXXX")
        vm_say "downloading linux-image-$VM_VERSION (70 MB, kept in ${VM_CACHE#"$PWD"/})"
        if vm_download "$fetch" "linux-image-$VM_VERSION" ||
            { vm_apt_update && vm_download "$fetch" "linux-image-$VM_VERSION"; }; then
            mv "$fetch"/linux-image-*.deb "$VM_KERNEL/"
            rm -rf "$fetch"
        else
            rm -rf "$fetch"
            rmdir "$VM_KERNEL" 2> /dev/null || true
            VM_VERSION=$(vm_cached_kernel)
            [ -n "$VM_VERSION" ] || vm_skip "the kernel cannot be downloaded: $(tail -n 1 "$VM_CACHE/download.log")"
            VM_KERNEL=$VM_CACHE/$VM_VERSION
            vm_say "no download; using kernel $VM_VERSION of the cache"
        fi
    fi
    VM_BASE=$VM_KERNEL/base-$(sha256sum < "$VM_DIR/lib.sh" | head -c 12)
    { [ -s "$VM_KERNEL/vmlinux" ] && vm_base_current; } ||
        vm_unpack_and_make "$VM_VERSION" "$VM_KERNEL" || vm_die "cannot make the base of the VM in $VM_KERNEL"
}

vm_prepare()
{
    vm_need_tools
    mkdir -p "$VM_CACHE"
    exec 9> "$VM_CACHE/lock"
    flock 9
    vm_prepare_locked
    flock -u 9
    exec 9>&-
}
