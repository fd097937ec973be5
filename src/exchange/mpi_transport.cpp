// SPDX-License-Identifier: Apache-2.0
#include "exchange/mpi_transport.hpp"

#include "core/error.hpp"
#include "core/log.hpp"
#include "exchange/mpi/module.h"

#include <dslide/cluster.h>

#include <algorithm>
#include <dlfcn.h>
#include <limits>
#include <link.h>
#include <new>
#include <string_view>
#include <vector>

namespace dslide {
namespace {

constexpr const char *open_mpi_symbol = "ompi_mpi_comm_world", *mpich_symbol = "MPIR_Dup_fn";

/// Libraries in the process whose name begins with libmpi. Interpreters load theirs so that dlsym(RTLD_DEFAULT) does
/// not see them.
std::vector<std::string> loaded_mpis() {
    std::vector<std::string> paths;
    dl_iterate_phdr(
        [](dl_phdr_info *info, std::size_t, void *list) {
            const std::string path = info->dlpi_name;
            if (path.find("/libmpi") != std::string::npos)
                static_cast<std::vector<std::string> *>(list)->push_back(path);
            return 0;
        },
        &paths);
    return paths;
}

bool has_symbol(const std::string &path, const char *symbol) {
    void *handle = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (!handle) return false;
    const bool found = dlsym(handle, symbol) != nullptr;
    dlclose(handle);
    return found;
}

/// Modules in the order they are tried: the one for the MPI that is in the process, else both.
std::vector<std::string> module_names() {
    const std::string number = ".so." + std::to_string(DSLIDE_ABI_VERSION);
    const std::string open_mpi = "libdslide-mpi-openmpi" + number, mpich = "libdslide-mpi-mpich" + number;
    bool has_open_mpi = dlsym(RTLD_DEFAULT, open_mpi_symbol) != nullptr;
    bool has_mpich = dlsym(RTLD_DEFAULT, mpich_symbol) != nullptr;
    if (!has_open_mpi && !has_mpich)
        for (const std::string &path : loaded_mpis()) {
            has_open_mpi |= has_symbol(path, open_mpi_symbol);
            has_mpich |= has_symbol(path, mpich_symbol);
        }
    if (has_open_mpi != has_mpich) return {has_open_mpi ? open_mpi : mpich};
    return {open_mpi, mpich};
}

/// The folder of this library.
std::string own_folder() {
    Dl_info info{};
    if (!dladdr(reinterpret_cast<const void *>(&own_folder), &info) || !info.dli_fname) return "";
    const std::string path = info.dli_fname;
    const std::size_t slash = path.rfind('/');
    return slash == std::string::npos ? "" : path.substr(0, slash + 1);
}

const dslide_mpi_module &load_module(const std::string &given) {
    std::vector<std::string> places;
    if (!given.empty()) {
        places.push_back(given);
    } else {
        for (const std::string &name : module_names())
            for (const std::string &place : {own_folder() + name, name}) places.push_back(place);
    }
    std::string tried;
    for (const std::string &place : places) {
        void *handle = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL); // never closed: MPI does not like to be unloaded
        if (!handle) {
            const char *error = dlerror();
            tried += (tried.empty() ? "" : "; ") + std::string(error ? error : place.c_str());
            continue;
        }
        const auto get = reinterpret_cast<const dslide_mpi_module *(*)()>(dlsym(handle, "dslide_mpi_module_get"));
        const dslide_mpi_module *module = get ? get() : nullptr;
        if (!module || module->version != DSLIDE_MPI_MODULE_VERSION)
            fail(DSLIDE_E_UNSUPPORTED, place, " is not a module for this version of the library");
        return *module;
    }
    fail(DSLIDE_E_UNSUPPORTED, "no module for MPI: ", tried);
}

class MpiTransport final : public Transport {
public:
    MpiTransport(const dslide_mpi_module &module, std::int64_t communicator, const MpiSettings &settings)
        : module_(module) {
        check(module_.open(communicator, settings.init, settings.timeout_seconds, &link_, &rank_, &size_));
        received_.resize(static_cast<std::size_t>(size_));
        pending_.resize(static_cast<std::size_t>(size_));
        last_words_.resize(static_cast<std::size_t>(size_));
    }
    ~MpiTransport() override {
        try {
            if (!is_ended_) log(DSLIDE_LOG_INFO, "a cluster was freed without being closed: its communicator is left");
        } catch (...) { // no memory for a line of text
        }
        module_.free(link_);
    }
    MpiTransport(const MpiTransport &) = delete;
    MpiTransport &operator=(const MpiTransport &) = delete;

    int rank() const override { return rank_; }
    int size() const override { return size_; }

    void start(const std::vector<Parcel> &parcels) override {
        std::vector<dslide_mpi_parcel> list;
        for (const Parcel &p : parcels) list.push_back({p.out, p.out_bytes, p.in, p.in_capacity});
        received_.assign(received_.size(), -1);
        check(module_.start(link_, list.data()));
    }
    bool test() override {
        int done = 0;
        check(module_.test(link_, &done, received_.data(), pending_.data()));
        if (!done) take_last_words();
        return done != 0;
    }
    std::ptrdiff_t received(int from) const override { return received_[static_cast<std::size_t>(from)]; }
    bool is_pending(int peer) override { return pending_[static_cast<std::size_t>(peer)] != 0; }
    bool is_gone(int) const override { return false; } // MPI does not tell
    void send_last_words(std::string_view words) noexcept override {
        module_.send_last_words(link_, words.data(), std::min(words.size(), most_last_words));
    }
    std::string last_words(int from) override { return last_words_[static_cast<std::size_t>(from)]; }
    void abandon() noexcept override {
        is_ended_ = true;
        module_.abandon(link_);
    }
    bool writes_after_abandon() const override { return true; }
    void close() override {
        is_ended_ = true;
        check(module_.close(link_));
    }

private:
    void take_last_words() {
        char words[most_last_words];
        std::size_t bytes = 0;
        int from = -1;
        check(module_.take_last_words(link_, &from, words, sizeof words, &bytes));
        if (from >= 0) last_words_[static_cast<std::size_t>(from)].assign(words, bytes);
    }
    void check(int code) const {
        switch (code) {
        case 0:
            return;
        case DSLIDE_MPI_NOT_INITIALISED:
            fail(DSLIDE_E_STATE, module_.library, " is not initialised: call MPI_Init_thread() first, or set init_mpi");
        case DSLIDE_MPI_FINALISED:
            fail(DSLIDE_E_STATE, "MPI is finalised");
        case DSLIDE_MPI_THREAD_LEVEL:
            fail(DSLIDE_E_STATE, "MPI was initialised without threads: MPI_THREAD_FUNNELED or more is needed");
        case DSLIDE_MPI_NO_MEMORY:
            throw std::bad_alloc();
        case DSLIDE_MPI_BAD_COMM:
            fail(DSLIDE_E_ARGUMENT, "communicator is not one of ", module_.library, ", or joins two groups");
        case DSLIDE_MPI_OTHER_THREAD:
            fail(DSLIDE_E_STATE, "MPI was initialised with MPI_THREAD_FUNNELED by another thread than this one");
        case DSLIDE_MPI_TIMED_OUT:
            fail(DSLIDE_E_PEER, "time-out: not every rank of the communicator came to open the cluster");
        case DSLIDE_MPI_TRUNCATED:
            fail(DSLIDE_E_PEER,
                 "a rank sent a longer message than was expected: another version of the library, or calls "
                 "in another order");
        default:
            char text[512];
            module_.error_text(code, text, sizeof text);
            fail(DSLIDE_E_MPI, module_.library, ": ", text[0] ? text : "unknown error");
        }
    }

    const dslide_mpi_module &module_;
    dslide_mpi_link *link_ = nullptr;
    int rank_ = 0, size_ = 1;
    bool is_ended_ = false;
    std::vector<std::int64_t> received_;
    std::vector<std::int8_t> pending_;
    std::vector<std::string> last_words_;
};

} // namespace

std::unique_ptr<Transport> make_mpi_transport(std::int64_t communicator, const MpiSettings &settings) {
    using Handle = std::numeric_limits<std::int32_t>; // Fortran's INTEGER
    if (communicator != DSLIDE_COMM_WORLD && (communicator < Handle::min() || communicator > Handle::max()))
        fail(DSLIDE_E_ARGUMENT, "communicator ", communicator, " is not a Fortran handle");
    return std::make_unique<MpiTransport>(load_module(settings.module), communicator, settings);
}

} // namespace dslide
