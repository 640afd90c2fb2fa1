#!/bin/bash
# The first process of a node of nodes.sh, in its own namespaces: init.sh FOLDER NAME SHARED. The node ends when this process is killed.
set -euo pipefail

folder=$1 name=$2 shared=$3
hostname "$name"
mkdir -p "$folder/$name"
# all sources first, because they may be in /tmp
mount --bind "$shared" /mnt
mount --bind "$folder/hosts" /etc/hosts
mount --bind "$folder/$name" /root
mount -t tmpfs node /run
cp "$folder/known_hosts" /run
# /sys with the interfaces of this node, and the cgroups as before
mkdir /run/cgroup
mount --rbind /sys/fs/cgroup /run/cgroup
mount -t sysfs sysfs /sys
mount --rbind /run/cgroup /sys/fs/cgroup
for place in /tmp /dev/shm; do mount -t tmpfs node "$place"; done
chmod 1777 /tmp /dev/shm
mkdir -p /run/sshd
ip link set lo up
until [ -e /sys/class/net/eth0 ]; do sleep 0.05; done
/usr/sbin/sshd -f /root/.ssh/sshd_config -E /root/sshd.log
touch /root/ready
# bash collects the exit codes of orphans
while :; do
    sleep 1000 &
    wait $! || true
done
