/* SPDX-License-Identifier: Apache-2.0 */
/* A machine as a SimGrid platform, and a list on all its ranks as a graph of activities. Flows share links max-min
 * fairly (SimGrid's CM02: no factors, no cross-traffic). A ring whose members have several adapters is divided into as
 * many rings, which leave a node from different members. */
#include "referee.h"

#include <simgrid/s4u.hpp>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

namespace
{
namespace sg4 = simgrid::s4u;
using Ranks = std::vector<int>;
const double ticks = 1e12; // of a second that passes while nothing travels

// ---- links ----

class Platform
{
  public:
    Platform(const qdr_machine &machine, int n_ranks, bool latencies);
    sg4::Host *host(int rank) { return hosts_[static_cast<size_t>(rank)]; }
    sg4::Host *clock() { return clock_; } // ticks of any number are sent to it at once
    int level_of(int a, int b) const; // on which two ranks meet
    void connect(int from, int to); // once is enough
    void finish() { zone_->seal(); }

  private:
    int unit(int level) const; // ranks that the level joins
    sg4::Link *link(const std::string &name, double rate, double latency);
    void add_end(int level, int rank, const char *way, std::vector<sg4::LinkInRoute> &route);

    const qdr_machine &machine_;
    int n_ranks_;
    bool latencies_;
    sg4::NetZone *zone_;
    std::vector<sg4::Host *> hosts_;
    sg4::Host *clock_;
    std::map<std::string, sg4::Link *> links_;
    std::set<std::pair<int, int>> connected_;
};

Platform::Platform(const qdr_machine &machine, int n_ranks, bool latencies)
    : machine_(machine), n_ranks_(n_ranks), latencies_(latencies), zone_(sg4::create_full_zone("machine"))
{
    clock_ = zone_->create_host("clock", 1);
    for (int rank = 0; rank < n_ranks; rank++) {
        const std::string name = "rank" + std::to_string(rank);
        hosts_.push_back(zone_->create_host(name, 1));
        const sg4::Link *any =
            zone_->create_link("ticks of " + name, ticks)->set_sharing_policy(sg4::Link::SharingPolicy::FATPIPE);
        zone_->add_route(hosts_.back()->get_netpoint(), clock_->get_netpoint(), nullptr, nullptr,
                         {sg4::LinkInRoute(any)}, false);
    }
}

int Platform::unit(int level) const
{
    if (level < 0) return 1;
    const int n = machine_.links[level].n_ranks;
    return n > 0 && n < n_ranks_ ? n : n_ranks_;
}

int Platform::level_of(int a, int b) const
{
    int level = 0;
    while (level < machine_.n_links - 1 && a / unit(level) != b / unit(level)) level++;
    return level;
}

sg4::Link *Platform::link(const std::string &name, double rate, double latency)
{
    sg4::Link *&found = links_[name];
    if (!found) found = zone_->create_link(name, rate)->set_latency(latencies_ ? latency : 0);
    return found;
}

// One end of a route: out of a rank or into it, and through its adapter. Half of the latency each.
void Platform::add_end(int level, int rank, const char *way, std::vector<sg4::LinkInRoute> &route)
{
    const qdr_machine_link &l = machine_.links[level];
    const std::string of = way + std::to_string(level) + "-";
    if (level == 0 || l.rank_bytes_per_sec > 0)
        route.emplace_back(
            link(of + "rank" + std::to_string(rank), l.rank_bytes_per_sec, level == 0 ? l.step_secs / 2 : 0));
    if (level == 0) return;
    const int n = unit(level - 1), adapter = rank % n * l.n_adapters / n;
    route.emplace_back(
        link(of + std::to_string(rank / n) + "-" + std::to_string(adapter), l.adapter_bytes_per_sec, l.step_secs / 2));
}

void Platform::connect(int from, int to)
{
    if (!connected_.insert({from, to}).second) return;
    std::vector<sg4::LinkInRoute> route;
    const int level = level_of(from, to);
    add_end(level, from, "from", route);
    add_end(level, to, "to", route);
    zone_->add_route(host(from)->get_netpoint(), host(to)->get_netpoint(), nullptr, nullptr, route, false);
}

// ---- groups ----

class Grid
{
  public:
    explicit Grid(const qdr_plan &plan);
    int n_ranks() const { return stride_[4]; }
    std::vector<Ranks> groups(int axis, int n_members, int step) const;

  private:
    int size_[4], place_[4], stride_[5]; // of an axis: its place in the order; by place: ranks
};

Grid::Grid(const qdr_plan &plan) : size_{plan.x, plan.y, plan.z, plan.d}
{
    const char *order = plan.order[0] ? plan.order : "xyzd";
    stride_[0] = 1;
    for (int i = 0; i < 4; i++) {
        const int axis = static_cast<int>(std::strchr("xyzd", order[i]) - "xyzd");
        place_[axis] = i;
        stride_[i + 1] = stride_[i] * size_[axis];
    }
}

// Of an axis, every step-th rank.
std::vector<Ranks> Grid::groups(int axis, int n_members, int step) const
{
    const int apart = stride_[place_[axis]];
    std::vector<Ranks> groups;
    for (int rank = 0; rank < n_ranks(); rank++) {
        if (rank / apart % size_[axis] / step % n_members != 0) continue; // not the first of its group
        Ranks group;
        for (int i = 0; i < n_members; i++) group.push_back(rank + i * step * apart);
        groups.push_back(group);
    }
    return groups;
}

// ---- graphs ----

// Sends that wait for one another. SimGrid can hold such a graph by itself, but what is created
// and not yet begun makes each end of another slow.
class Graph
{
  public:
    int add(sg4::Host *from, sg4::Host *to, double bytes);
    void before(int first, int second) // twice is twice
    {
        sends_[static_cast<size_t>(first)].next.push_back(second);
        sends_[static_cast<size_t>(second)].n_before++;
    }
    double secs(); // when all are done; -1: some never begin

  private:
    struct Send {
        sg4::Host *from, *to;
        uint64_t bytes;
        int n_before;
        std::vector<int> next;
    };
    void begin(int number);
    void end(int number);

    std::vector<Send> sends_;
    std::unordered_map<const sg4::Activity *, std::pair<int, sg4::CommPtr>> runs_;
    std::vector<sg4::CommPtr> ended_; // now, and still in the hands of the engine
    double now_ = 0;
    size_t n_done_ = 0;
};

int Graph::add(sg4::Host *from, sg4::Host *to, double bytes)
{
    sends_.push_back({from, to, static_cast<uint64_t>(std::max(1.0, bytes + 0.5)), 0, {}});
    return static_cast<int>(sends_.size()) - 1;
}

void Graph::begin(int number)
{
    const Send &send = sends_[static_cast<size_t>(number)];
    const sg4::CommPtr comm = sg4::Comm::sendto_init(send.from, send.to);
    runs_[comm.get()] = {number, comm};
    comm->set_payload_size(send.bytes)->vetoable_start();
}

void Graph::end(int number)
{
    n_done_++;
    for (const int next : sends_[static_cast<size_t>(number)].next)
        if (--sends_[static_cast<size_t>(next)].n_before == 0) begin(next);
}

double Graph::secs()
{
    sg4::Activity::on_completion_cb([this](const sg4::Activity &comm) {
        const auto found = runs_.find(&comm);
        const int number = found->second.first;
        if (sg4::Engine::get_clock() > now_) ended_.clear();
        now_ = sg4::Engine::get_clock();
        ended_.push_back(found->second.second);
        runs_.erase(found);
        end(number);
    });
    std::vector<int> first;
    for (size_t i = 0; i < sends_.size(); i++)
        if (sends_[i].n_before == 0) first.push_back(static_cast<int>(i));
    for (const int number : first) begin(number);
    sg4::Engine::get_instance()->run();
    return n_done_ == sends_.size() ? sg4::Engine::get_clock() : -1;
}

// ---- lists ----

class Run
{
  public:
    Run(const qdr_machine &machine, const qdr_plan &plan, const referee_list &list, bool messages);
    double secs();

  private:
    void add_work(int number);
    void add_collective(int number);
    void add_flows(const Ranks &ring, double bytes, int begin, int end);
    void add_messages(const Ranks &ring, double bytes, int n, int begin, int end);
    void wait_for_others(int number, int rank, int waiting);
    std::vector<Ranks> rings_of(const Ranks &group) const;
    double turn_secs(const Ranks &ring) const;
    int delay(double secs, int rank);
    int flow(int from, int to, double bytes);
    size_t at(int rank, int number) const
    {
        return static_cast<size_t>(rank) * static_cast<size_t>(list_.n_tasks) + static_cast<size_t>(number);
    }

    const qdr_machine &machine_;
    const referee_list &list_;
    Grid grid_;
    Platform platform_;
    bool messages_;
    std::vector<int> previous_; // task on the same stream
    std::vector<int> ends_; // of each rank's tasks
    Graph graph_;
};

Run::Run(const qdr_machine &machine, const qdr_plan &plan, const referee_list &list, bool messages)
    : machine_(machine), list_(list), grid_(plan), platform_(machine, grid_.n_ranks(), messages), messages_(messages)
{
    ends_.resize(at(grid_.n_ranks(), 0));
    std::map<int, int> last;
    for (int i = 0; i < list.n_tasks; i++) {
        const int stream = list.tasks[i].stream;
        previous_.push_back(last.count(stream) ? last[stream] : -1);
        last[stream] = i;
    }
}

int Run::delay(double secs, int rank) { return graph_.add(platform_.host(rank), platform_.clock(), secs * ticks); }

int Run::flow(int from, int to, double bytes)
{
    platform_.connect(from, to);
    return graph_.add(platform_.host(from), platform_.host(to), bytes);
}

void Run::wait_for_others(int number, int rank, int waiting)
{
    const referee_task &task = list_.tasks[number];
    if (previous_[static_cast<size_t>(number)] >= 0)
        graph_.before(ends_[at(rank, previous_[static_cast<size_t>(number)])], waiting);
    for (int i = 0; i < task.n_waits; i++) graph_.before(ends_[at(rank, task.waits[i])], waiting);
}

void Run::add_work(int number)
{
    for (int rank = 0; rank < grid_.n_ranks(); rank++) {
        const int work = delay(list_.tasks[number].secs, rank);
        wait_for_others(number, rank, work);
        ends_[at(rank, number)] = work;
    }
}

// Members of one unit below the highest level take turns to be the one that leaves it.
std::vector<Ranks> Run::rings_of(const Ranks &group) const
{
    const int top = platform_.level_of(group.front(), group.back());
    std::vector<Ranks> units, rings;
    for (const int rank : group) {
        if (units.empty() || platform_.level_of(units.back().back(), rank) == top) units.emplace_back();
        units.back().push_back(rank);
    }
    const size_t n = top > 0 && machine_.links[top].n_adapters > 1 ? units[0].size() : 1;
    for (size_t k = 0; k < n; k++) {
        Ranks ring;
        for (Ranks unit : units) {
            if (top > 0) std::rotate(unit.begin(), unit.begin() + static_cast<long>(k % unit.size()), unit.end());
            ring.insert(ring.end(), unit.begin(), unit.end());
        }
        rings.push_back(ring);
    }
    return rings;
}

// All steps of the way around but one of the longest.
double Run::turn_secs(const Ranks &ring) const
{
    double sum = 0, most = 0;
    for (size_t i = 0; i < ring.size(); i++) {
        const int level = platform_.level_of(ring[i], ring[(i + 1) % ring.size()]);
        sum += machine_.links[level].step_secs;
        most = std::max(most, machine_.links[level].step_secs);
    }
    return sum - most;
}

void Run::add_flows(const Ranks &ring, double bytes, int begin, int end)
{
    for (size_t i = 0; i < ring.size(); i++) {
        const int sent = flow(ring[i], ring[(i + 1) % ring.size()], bytes);
        graph_.before(begin, sent);
        graph_.before(sent, end);
    }
}

// n rounds: a rank sends on what has come in the round before.
void Run::add_messages(const Ranks &ring, double bytes, int n, int begin, int end)
{
    const size_t g = ring.size();
    std::vector<int> sent(g, begin);
    for (int round = 0; round < n; round++) {
        std::vector<int> next;
        for (size_t i = 0; i < g; i++) {
            next.push_back(flow(ring[i], ring[(i + 1) % g], bytes));
            graph_.before(round ? sent[(i + g - 1) % g] : begin, next.back());
        }
        sent = next;
    }
    for (const int last : sent) graph_.before(last, end);
}

void Run::add_collective(int number)
{
    const referee_task &task = list_.tasks[number];
    for (const Ranks &group : grid_.groups(task.axis, task.n_members, task.step)) {
        const std::vector<Ranks> rings = rings_of(group);
        const double g = static_cast<double>(group.size()), n_rings = static_cast<double>(rings.size());
        const double turns = messages_ ? 0 : task.n_turns * turn_secs(group);
        const int begin = delay(machine_.collectives.start_secs + turns, group[0]), end = delay(0, group[0]);
        for (const Ranks &ring : rings) {
            if (messages_)
                add_messages(ring, task.bytes / g / n_rings, task.n_turns * (static_cast<int>(g) - 1), begin, end);
            else
                add_flows(ring, task.n_turns * (g - 1) / g * task.bytes / n_rings, begin, end);
        }
        for (const int rank : group) {
            wait_for_others(number, rank, begin);
            ends_[at(rank, number)] = end;
        }
    }
}

double Run::secs()
{
    for (int i = 0; i < list_.n_tasks; i++) {
        if (list_.tasks[i].axis < 0)
            add_work(i);
        else
            add_collective(i);
    }
    platform_.finish();
    return graph_.secs();
}
} // namespace

extern "C" double referee_secs(const qdr_machine *machine, const qdr_plan *plan, const referee_list *list, int messages)
try {
    char name[] = "referee", quiet[] = "--log=root.thresh:error", model[] = "--cfg=network/model:CM02",
         traffic[] = "--cfg=network/crosstraffic:0", window[] = "--cfg=network/TCP-gamma:0",
         precise[] = "--cfg=surf/precision:1e-12";
    char *words[] = {name, quiet, model, traffic, window, precise, nullptr};
    int n_words = 6;
    sg4::Engine engine(&n_words, words);
    return Run(*machine, *plan, *list, messages != 0).secs();
} catch (const std::exception &error) {
    std::fprintf(stderr, "referee: %s\n", error.what());
    return -1;
}
