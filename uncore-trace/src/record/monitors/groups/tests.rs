use super::*;
use crate::discover::resctrl::fake::FakeResctrl;

const SECOND: u64 = 1_000_000_000;

/// /a, /b and /c in the default group; /d in the control group `web`, and /e with a thread in a
/// monitoring group of somebody else.
fn fake(dir: &Path, rmids: usize) -> FakeResctrl {
    let fake = FakeResctrl::new(dir);
    for (cgroup, threads) in
        [("/a", &[1, 2][..]), ("/b", &[3]), ("/c", &[4]), ("/d", &[5, 6]), ("/e", &[7, 8])]
    {
        fake.add_cgroup(cgroup, threads);
    }
    fake.add_group("", &[1, 2, 3, 4, 7, 8, 9], "0-1");
    fake.add_group("web", &[5, 6, 10], "");
    fake.add_group("mon_groups/foreign", &[8], "");
    fake.add_cgroup("/", &[9, 10]);
    fake.write_file("info/L3_MON/num_rmids", &format!("{rmids}\n"));
    fake
}

fn groups(dir: &Path, fake: &FakeResctrl, most: usize) -> OwnGroups {
    let resctrl = Resctrl::find_mounted(dir).unwrap();
    let (cgroups, view) = (Path::new("/sys/fs/cgroup"), CgroupView::default());
    OwnGroups::new(dir, cgroups, &view, resctrl, most, Box::new(fake.clone()))
}

/// A look with these tenants.
fn look(groups: &mut OwnGroups, second: u64, tenants: &[&str]) {
    groups.rank_tenants(tenants.iter().map(|its| Arc::from(*its)).collect());
    let all = groups.resctrl.read_groups().unwrap();
    groups.update_groups(second * SECOND, &all, &BTreeSet::new());
}

/// The groups that were made: the cgroup, the control group and the threads of each.
fn made(groups: &OwnGroups, fake: &FakeResctrl) -> Vec<(String, String, Vec<u32>)> {
    let mut made: Vec<_> = groups
        .groups_with_cgroups()
        .map(|(group, cgroup)| {
            let threads = fake.read_tasks(&group.name);
            (cgroup.to_string(), group.control_name().to_owned(), threads)
        })
        .collect();
    made.sort();
    made
}

fn one(cgroup: &str, control: &str, threads: &[u32]) -> (String, String, Vec<u32>) {
    (cgroup.to_owned(), control.to_owned(), threads.to_vec())
}

const FOREIGN: [&str; 3] = ["", "mon_groups/foreign", "web"];

#[test]
fn groups_take_the_threads_of_cgroups_and_give_them_back() {
    let dir = tempfile::tempdir().unwrap();
    let fake = fake(dir.path(), 16);
    let mut groups = groups(dir.path(), &fake, 8);
    look(&mut groups, 1, &[]);
    assert!(made(&groups, &fake).is_empty());
    // /e is not taken apart, the root and what does not exist are nobody's.
    look(&mut groups, 2, &["/e", "/", "/a", "/d", "/gone", "/../x"]);
    let right = [one("/a", "", &[1, 2]), one("/d", "web", &[5, 6])];
    assert_eq!(made(&groups, &fake), right);
    assert_eq!(fake.read_tasks("mon_groups/foreign"), [8]);
    assert_eq!(fake.read_tasks("web"), [5, 6, 10]);
    assert_eq!(fake.group_names().len(), 5);
    drop(groups);
    let mut left = fake.group_names();
    left.sort_unstable();
    assert_eq!(left, FOREIGN);
    assert_eq!(fake.read_tasks("mon_groups/foreign"), [8]);
    assert_eq!(fake.read_tasks("web"), [5, 6, 10]);
}

#[test]
fn threads_that_come_and_go_are_followed() {
    let dir = tempfile::tempdir().unwrap();
    let fake = fake(dir.path(), 16);
    let mut groups = groups(dir.path(), &fake, 8);
    look(&mut groups, 1, &["/a", "/b"]);
    let inode = groups.made_groups[0].group.inode;
    let worth = |groups: &mut OwnGroups| groups.take_worth(inode);
    assert_eq!((worth(&mut groups), worth(&mut groups)), (Worth::Nothing, Worth::Whole));
    // The kernel puts a fork in the group.
    fake.fork_thread("/a", 1, 20);
    assert!(!groups.follow_threads(SECOND + FOLLOW_NS));
    assert_eq!(worth(&mut groups), Worth::Whole);
    // A shell that comes from elsewhere is not in it. 4 moves from /c to /a.
    fake.add_cgroup("/c", &[]);
    fake.add_cgroup("/a", &[1, 2, 20, 4]);
    assert!(!groups.follow_threads(SECOND + FOLLOW_NS + 1));
    assert_eq!(made(&groups, &fake)[0], one("/a", "", &[1, 2, 20]));
    assert!(!groups.follow_threads(SECOND + 2 * FOLLOW_NS));
    assert_eq!(worth(&mut groups), Worth::Begin);
    assert_eq!(made(&groups, &fake)[0], one("/a", "", &[1, 2, 20, 4]));
    // 2 leaves for the root, 20 for /b.
    fake.add_cgroup("/a", &[1, 4]);
    fake.add_cgroup("/", &[9, 10, 2]);
    fake.add_cgroup("/b", &[3, 20]);
    look(&mut groups, 2, &["/a", "/b"]);
    assert_eq!(made(&groups, &fake), [one("/a", "", &[1, 4]), one("/b", "", &[3, 20])]);
    // Somebody takes a thread: the cgroup has no group of its own any more.
    fake.move_thread(4, &fake.mount_dir().join("mon_groups/foreign")).unwrap();
    fake.add_cgroup("/a", &[1, 4, 30]);
    assert!(groups.follow_threads(3 * SECOND));
    assert_eq!(made(&groups, &fake), [one("/b", "", &[3, 20])]);
    assert_eq!(fake.read_tasks("mon_groups/foreign"), [8, 4]);
}

#[test]
fn fewer_rmids_than_tenants_rotate() {
    let dir = tempfile::tempdir().unwrap();
    // Three are used by others.
    let fake = fake(dir.path(), 5);
    let mut groups = groups(dir.path(), &fake, 8);
    let tenants = ["/a", "/b", "/c", "/d"];
    let mut seen = BTreeSet::new();
    for second in 1..=20 {
        look(&mut groups, second, &tenants);
        let made: Vec<String> = made(&groups, &fake).into_iter().map(|its| its.0).collect();
        assert!(made.len() == 2 && made[0] == "/a", "{made:?}");
        seen.extend(made);
    }
    assert_eq!(Vec::from_iter(&seen), tenants);
    assert_eq!(fake.group_names().len(), 5);
}

#[test]
fn an_rmid_that_is_not_free_yet_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let fake = fake(dir.path(), 5);
    fake.set_limbo(1);
    let mut groups = groups(dir.path(), &fake, 8);
    look(&mut groups, 1, &["/a", "/b"]);
    assert_eq!(made(&groups, &fake), [one("/a", "", &[1, 2])]);
    fake.set_limbo(0);
    look(&mut groups, 2, &["/a", "/b"]);
    assert_eq!(made(&groups, &fake).len(), 2);
    // Where counters are assigned, a group without any is not made.
    drop(groups);
    fake.write_file("info/L3_MON/available_mbm_cntrs", "0=8;1=3\n");
    let mut groups = self::groups(dir.path(), &fake, 8);
    look(&mut groups, 1, &["/a", "/b"]);
    assert_eq!(made(&groups, &fake).len(), 1);
}

#[test]
fn who_holds_the_lock_sees_no_change() {
    let dir = tempfile::tempdir().unwrap();
    let fake = fake(dir.path(), 16);
    let mut groups = groups(dir.path(), &fake, 8);
    let held = lock_dir(&fake.mount_dir()).unwrap();
    look(&mut groups, 1, &["/a"]);
    assert!(made(&groups, &fake).is_empty());
    drop(held);
    look(&mut groups, 2, &["/a"]);
    assert_eq!(made(&groups, &fake).len(), 1);
    // A group that somebody else removes is made again.
    let name = groups.made_groups[0].group.name.clone();
    fake.remove_group(&fake.mount_dir().join(name)).unwrap();
    look(&mut groups, 3, &["/a"]);
    assert_eq!(made(&groups, &fake), [one("/a", "", &[1, 2])]);
}
