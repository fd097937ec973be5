// SPDX-License-Identifier: Apache-2.0
#include "exchange/mpi_transport.hpp"

#include "core/error.hpp"
#include "exchange/mpi/module.h"

#include <dlfcn.h>

namespace dslide {
namespace {

/// Modules in the order they are tried: the one for the MPI that is in the process, else both.
std::vector<std::string> module_names() {
    const bool open_mpi = dlsym(RTLD_DEFAULT, "ompi_mpi_comm_world") != nullptr;
    const bool mpich = dlsym(RTLD_DEFAULT, "MPIR_Dup_fn") != nullptr;
    if (open_mpi != mpich) return {open_mpi ? "libdslide-mpi-openmpi.so.0" : "libdslide-mpi-mpich.so.0"};
    return {"libdslide-mpi-openmpi.so.0", "libdslide-mpi-mpich.so.0"};
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
    MpiTransport(const dslide_mpi_module &module, std::int64_t communicator, bool init) : module_(module) {
        check(module_.open(communicator, init, &link_, &rank_, &size_));
        received_.resize(static_cast<std::size_t>(size_));
        pending_.resize(static_cast<std::size_t>(size_));
    }
    ~MpiTransport() override { module_.free(link_); }
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
        return done != 0;
    }
    std::ptrdiff_t received(int from) const override { return received_[static_cast<std::size_t>(from)]; }
    bool is_pending(int peer) override { return pending_[static_cast<std::size_t>(peer)] != 0; }
    bool is_gone(int) const override { return false; } // MPI does not tell
    void send_last(const void *data, std::size_t bytes) noexcept override { module_.send_last(link_, data, bytes); }
    void abandon() noexcept override { module_.abandon(link_); }
    bool writes_after_abandon() const override { return true; }
    void close() override { check(module_.close(link_)); }

private:
    void check(int code) const {
        switch (code) {
        case 0:
            return;
        case DSLIDE_MPI_NOT_INITIALISED:
            fail(DSLIDE_E_STATE, "MPI is not initialised: call MPI_Init_thread() first, or set init_mpi");
        case DSLIDE_MPI_FINALISED:
            fail(DSLIDE_E_STATE, "MPI is finalised");
        case DSLIDE_MPI_THREAD_LEVEL:
            fail(DSLIDE_E_STATE, "MPI was initialised without threads: MPI_THREAD_FUNNELED or more is needed");
        case DSLIDE_MPI_NO_MEMORY:
            throw std::bad_alloc();
        default:
            char text[512];
            module_.error_text(code, text, sizeof text);
            fail(DSLIDE_E_MPI, module_.library, ": ", text[0] ? text : "unknown error");
        }
    }

    const dslide_mpi_module &module_;
    dslide_mpi_link *link_ = nullptr;
    int rank_ = 0, size_ = 1;
    std::vector<std::int64_t> received_;
    std::vector<std::int8_t> pending_;
};

} // namespace

std::unique_ptr<Transport> make_mpi_transport(std::int64_t communicator, const std::string &module, bool init) {
    return std::make_unique<MpiTransport>(load_module(module), communicator, init);
}

} // namespace dslide
