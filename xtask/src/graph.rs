//! Cycles in a small graph: of packages, of modules.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// For each name those that its arrows lead to.
pub type Graph<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// The names that reach each other, in groups: each group is what one can go round in. The largest first.
pub fn knots<'a>(graph: &Graph<'a>) -> Vec<BTreeSet<&'a str>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> = graph.keys().map(|from| (*from, reached_from(graph, from))).collect();
    let (mut found, mut known) = (Vec::new(), BTreeSet::new());
    for (name, to) in reached.iter().filter(|(name, to)| to.contains(*name)) {
        let back = |other: &&&str| reached.get(**other).is_some_and(|names| names.contains(name));
        let knot: BTreeSet<&str> = to.iter().filter(back).copied().collect();
        if !known.contains(name) {
            known.extend(knot.iter().copied());
            found.push(knot);
        }
    }
    found.sort_by_key(|knot| std::cmp::Reverse(knot.len()));
    found
}

fn reached_from<'a>(graph: &Graph<'a>, from: &str) -> BTreeSet<&'a str> {
    let (mut found, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(name) = open.pop() {
        for to in graph.get(name).into_iter().flatten() {
            if found.insert(*to) {
                open.push(to);
            }
        }
    }
    found
}

/// The shortest way round among these names; of several the first by name. Its first name stands at its end again.
pub fn shortest_cycle<'a>(graph: &Graph<'a>, among: &BTreeSet<&'a str>) -> Option<Vec<&'a str>> {
    among.iter().filter_map(|name| way_back(graph, name)).min_by_key(Vec::len)
}

fn way_back<'a>(graph: &Graph<'a>, start: &'a str) -> Option<Vec<&'a str>> {
    let mut came_from: BTreeMap<&str, &str> = BTreeMap::new();
    let mut open = VecDeque::from([start]);
    while let Some(name) = open.pop_front() {
        for to in graph.get(name).into_iter().flatten() {
            if *to == start {
                let mut way = vec![start, name];
                while let Some(before) = came_from.get(way[way.len() - 1]).filter(|_| way[way.len() - 1] != start) {
                    way.push(before);
                }
                if way.len() > 2 || name != start {
                    way.reverse();
                }
                return Some(way);
            }
            if *to != start && !came_from.contains_key(to) {
                came_from.insert(to, name);
                open.push_back(to);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(arrows: &str) -> Graph<'_> {
        let mut graph = Graph::new();
        for (from, to) in arrows.split(' ').filter_map(|arrow| arrow.split_once('>')) {
            graph.entry(from).or_default().insert(to);
        }
        graph
    }

    #[test]
    fn knots_are_what_one_can_go_round_in() {
        assert!(knots(&graph("a>b a>c b>c c>d")).is_empty());
        let found = knots(&graph("a>b b>a x>y y>z z>x b>x z>e e>e"));
        let shown: Vec<String> = found.iter().map(|knot| knot.iter().copied().collect()).collect();
        assert_eq!(shown, ["xyz", "ab", "e"]);
    }

    #[test]
    fn the_shortest_cycle_is_told() {
        for (arrows, expected) in [
            ("a>b b>c c>d d>a", Some("abcda")),
            ("a>b b>c c>d d>a c>b", Some("bcb")),
            ("a>b b>a", Some("aba")),
            ("a>a a>b", Some("aa")),
            ("a>b b>c", None),
        ] {
            let graph = graph(arrows);
            let among = graph.keys().copied().collect();
            let found = shortest_cycle(&graph, &among).map(|way| way.concat());
            assert_eq!(found.as_deref(), expected, "{arrows}");
        }
    }
}
