#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Goal: `cairn doctor` on captured trees of several vendors' layouts: the findings expected, no others that matter,
# the exit code by the worst of them; JSON that parses; hostile trees; and this machine, whatever it has.
# test_doctor.sh CAIRN FIXTURES
set -euo pipefail
cairn=$(readlink -f "$1") fixtures=$(readlink -f "$2")
here=$(dirname "$(readlink -f "$0")")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
fail()
{
    echo "FAILED: $*"
    exit 1
}
# examine TREE CODE OPTION...: run on the fixture; the text goes to `out`, the ids worst first to `ids`.
examine()
{
    local tree=$1 code=$2 got=0
    shift 2
    [ -d "$tree" ] || { mkdir "$tree" && "$here/unpack_tree.sh" "$fixtures/$tree.tree" "$tree"; }
    out=$(timeout 60 "$cairn" doctor --root "$tree" "$@" 2>&1 < /dev/null) || got=$?
    [ "$got" -eq "$code" ] || fail "$tree: exit $got, wanted $code: $out"
    got=0
    timeout 60 "$cairn" doctor --root "$tree" --json "$@" > report.json || got=$?
    [ "$got" -eq "$code" ] || fail "$tree --json: exit $got, wanted $code"
    ids=$(sed -n 's/^ *"id": "\(.*\)",\?$/\1/p' report.json | tr '\n' ' ')
    severities=$(sed -n 's/^ *"severity": "\(.*\)",\?$/\1/p' report.json | uniq | tr '\n' ' ')
    case $severities in
    '' | 'ok ' | 'note ' | 'note ok ' | 'warning ' | 'warning ok ' | 'warning note ' | 'warning note ok ' | 'error ' | \
        'error ok ' | 'error note ' | 'error note ok ' | 'error warning ' | 'error warning ok ' | \
        'error warning note ' | 'error warning note ok ') ;;
    *) fail "$tree: not sorted: $severities" ;;
    esac
}
says()
{
    local text
    for text in "$@"; do grep -qF -- "$text" <<< "$out" || fail "wanted \"$text\" in: $out"; done
}
finds()
{
    local id
    for id in "$@"; do [[ " $ids" == *" $id "* ]] || fail "wanted $id among: $ids"; done
}
exactly() { [ "$ids" = "$* " ] || fail "wanted exactly $*, got: $ids"; }

examine mlx5-roce-healthy 0
exactly packet-loss port-usable
says 'cairn doctor: 1 note' 'out_of_sequence 12' 'mlx5_0: RoCE, driver mlx5_ib' 'x16 at 8.0 GT/s' \
    'ens1f0np0: up, MTU 9000 (path MTU 4096)' '4 GIDs (2 RoCE v2)' 'tos 106'
grep -q '"rp_dce_tcp_g": "1019"' report.json || fail "no cc_params"

examine mlx5-roce-sick 3
exactly roce-mode mtu-mismatch packet-loss discards link-errors congestion-control pcie-link mtu-small receiver-not-ready \
    refused-accesses port-usable
says 'x4 at 5.0 GT/s; the device can x16 at 8.0 GT/s' 'lspci -vv -s 0000:5e:00.0' 'out_of_sequence 5,120' \
    'ens1f0np0.100 has MTU 1500, ens1f0np0 has 9000' 'ip link set dev ens1f0np0.100 mtu 9000' \
    'cma_roce_mode -d mlx5_0 -p 1 -m 2' 'DCQCN) is half on'

examine mlx5-ib-no-sm 1
exactly no-subnet-manager
says 'opensm' 'state INIT'

examine mlx4-ib-dual 0
exactly port-down port-usable
says 'mlx4_0/2' 'no signal'

examine irdma-both 3
exactly packet-loss congestion-control pcie-link pcie-link no-atomics port-usable port-usable
says 'rocep59s0f0: RoCE, driver irdma' 'iwp59s0f1: iWARP, driver irdma' 'tcpRetransSegs 900' 'nothing is wrong: iWARP' \
    'echo 1 > /sys/kernel/config/irdma/rocep59s0f0/roce_dcqcn_enable'
examine irdma-both 0 --device rocep59s0f0
exactly congestion-control pcie-link port-usable
examine irdma-both 1 --device nonsense
exactly no-rdma-device
says 'no RDMA device nonsense (of 2 there are)'

examine bnxt-re-lossy 3
exactly gid retries-used-up packet-loss discards congestion-control mtu-small port-usable
says 'only link-local GIDs' 'max_retry_exceeded 2' 'to_retransmits 310' 'rx_roce_discards 18'

examine rxe-healthy 0
exactly packet-loss mtu-small port-usable
says 'rxe0: RoCE, driver rdma_rxe' 'path MTU is 1024' 'completer_retry_err 4'

examine siw-down 1
exactly port-down memlock-low netdev no-atomics huge-pages-off
says 'ip link set dev eth1 up' 'limited to 8.0 MiB' 'switched off by the administrator' 'LimitMEMLOCK=infinity'

examine none 1
exactly no-rdma-device
says 'modprobe rdma_rxe && rdma link add rxe0 type rxe netdev' 'Devices: none'

examine efa-no-modules 1
exactly no-uverbs no-rdma-cm transport-unsupported
says 'modprobe ib_uverbs' 'modprobe rdma_ucm' 'EFA'

# Pools of a configuration.
cat > rpma.conf << 'END'
cluster = "0b0e5c1e-2c39-4d25-9c5e-5f2b1b9a7e11";
fabric = "rpma";
nodes = (
    { id = 1; address = "10.0.0.1:7471"; pool = "/dev/dax0.0"; },
    { id = 2; address = "10.0.0.2:7471"; pool = "/dev/dax1.0"; },
    { id = 3; address = "10.0.0.3:7471"; pool = "/mnt/my pmem/n3.pool"; size = "512M"; },
    { id = 4; address = "10.0.0.4:7471"; pool = "/dev/shm/n4.pool"; size = "512M"; persistence = "apm"; },
    { id = 5; address = "10.0.0.5:7471"; pool = "/var/n5.pool"; size = "512M"; },
    { id = 6; address = "10.0.0.6:7471"; pool = "/dev/dax9.9"; }
);
tables = ( { id = 1; name = "accounts"; } );
END
examine pmem 1 --config rpma.conf
says 'nmem1 says: not_armed flush_fail' 'node 1 needs up to 15.8 GiB' 'limited to 8.0 MiB' 'fsdax can be registered only' \
    'persistence = "apm" is declared for a pool on tmpfs' 'persistence domain memory_controller of region0' \
    'namespace0.1 (1.0 GiB) is in mode raw' 'on NUMA node 1, no RDMA device is' 'node 2: /dev/dax1.0: devdax' \
    'node 3: /mnt/my pmem/n3.pool: fsdax on ext4' 'node 4: /dev/shm/n4.pool: tmpfs on tmpfs' \
    'node 5: /var/n5.pool: file on ext4' 'A device is not made by a node'
finds nvdimm-failing memlock-low pool-not-registrable pool-persistence pool-volatile pool-missing namespace-mode pool-numa
grep -qF 'node 2: ' <(grep -A1 'pool-persistence' <<< "$out") && fail "eADR is fine with auto: $out"
examine pmem 1 --config rpma.conf --id 2
says 'node 2 needs up to'
examine pmem 1 --config rpma.conf --id 6
says 'ERROR: node 6: /dev/dax9.9 (pool-missing)'
examine pmem 1 --config rpma.conf --id 2
grep -qF 'node 3' <<< "$out" && fail "--id 2: others too: $out"
examine pmem 2 --config rpma.conf --id 9 2> /dev/null
says 'there is no node 9'
# A newer kernel pins no files; and a configuration without RDMA needs none.
echo 6.8.0-1-amd64 > pmem/proc/sys/kernel/osrelease
examine pmem 1 --config rpma.conf --id 5
says 'a file on ext4 cannot be registered with kernel 6.8.0-1-amd64'
sed -e 's/"rpma"/"emu"/' -e '/id = [3456]/d' -e 's/dax1.0"; },/dax1.0"; }/' -e 's/10.0.0.\(.\):7471/n\1.sock/' rpma.conf > emu.conf
examine none 0 --config emu.conf
finds no-rdma-device pool-missing
says 'cairn doctor:' 'The configuration does not use one'

# Nothing in a hostile tree may crash, hang, or get into a command.
mkdir hostile && "$here/unpack_tree.sh" "$fixtures/hostile.tree" hostile
mkfifo hostile/sys/class/infiniband/hostile2/ports/1/sm_lid
head -c 3000000 /dev/zero | tr '\0' 'x' > hostile/proc/self/mounts
head -c 100000 /dev/zero | tr '\0' '7' > hostile/sys/class/infiniband/hostile1/fw_ver
for i in {1..300}; do mkdir -p "hostile/sys/class/infiniband/many$i/ports/1"; done
examine hostile 1 --config rpma.conf
finds malformed
says 'files could not be understood'
[ ! -e pwned ] || fail "a command of the tree was run"
for bad in $'\x1b' 'touch pwned' '%n%s' root:; do
    grep -qF -- "$bad" <<< "$out" && [ "$bad" != '%n%s' ] && fail "hostile bytes came out: $bad"
done
# Any file of a sick tree replaced by noise: an exit code, never a crash.
examine mlx5-roce-sick 3
find mlx5-roce-sick -type f | LC_ALL=C sort | while read -r file; do
    cp "$file" saved
    for noise in '' '-99999999999999999999' $'4: \xff\xfe'; do
        printf '%s' "$noise" > "$file"
        got=0
        timeout 60 "$cairn" doctor --root mlx5-roce-sick --json > noise.json || got=$?
        case $got in 0 | 1 | 3) ;; *) fail "$file = \"$noise\": exit $got" ;; esac
        [ "$(tail -n 1 noise.json)" = '}' ] || fail "$file = \"$noise\": no JSON"
    done
    cp saved "$file"
done

# Errors of usage, and this machine.
"$cairn" doctor --help | grep -q 'Example:' || fail "--help"
got=0 && "$cairn" doctor --root "$dir/nowhere" 2> err || got=$?
[ $got -eq 2 ] && grep -q 'cannot open the root' err || fail "--root nowhere: exit $got"
got=0 && "$cairn" doctor --id 3 2> err || got=$?
[ $got -eq 2 ] || fail "--id without --config: exit $got"
got=0 && "$cairn" doctor --pid 4194304 2> err || got=$? # more than there can be
[ $got -eq 2 ] && grep -q -- '--pid: the limits of process 4194304 cannot be read' err || fail "--pid: $(cat err)"
got=0 && timeout 60 "$cairn" doctor --json > live.json || got=$?
case $got in 0 | 1 | 3) ;; *) fail "live: exit $got" ;; esac
grep -q '"live": true' live.json || fail "live.json"
if [ ! -d /sys/class/infiniband ]; then grep -q no-rdma-device live.json || fail "live: no finding"; fi
echo ok
